"""A reader that knows its end is not asked for it, and its split is finished all the same."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.clock import VirtualClock
from tests.support.pipelines import Outside, config, run
from tests.support.pressure import (
    checkpoints,
    committed_by,
    copy_of,
    outside_as_of,
    pressed,
    run_pressed,
    slowly,
)
from tidelog import Job
from tidelog.runtime.source import Source, SplitReader
from tidelog.storage.memory import MemoryStore

SPLITS = [f"file {number}" for number in range(40)]


class Numbers(SplitReader):
    """Two reads of two records each; the second one is known to be the last."""

    def __init__(self, split: str, position: int | None, asked: list[str]) -> None:
        self._split = split
        self.position = position or 0
        self._asked = asked

    @property
    def at_end(self) -> bool:  # type: ignore[override]
        return self.position == 4

    def read(self) -> list[Any] | None:
        self._asked.append(self._split)
        first, self.position = self.position, self.position + 2
        return [f"{self._split}, {number}" for number in range(first, first + 2)]


class Known(Source):
    def __init__(self, asked: list[str], *, blocking: bool) -> None:
        self.blocking = blocking
        self._asked = asked

    def discover(self) -> list[str]:
        return SPLITS

    def open(self, split: str, position: Any) -> Numbers:
        return Numbers(split, position, self._asked)


def expected() -> Iterator[str]:
    return (f"{split}, {number}" for split in SPLITS for number in range(4))


@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_reader_that_knows_its_end_is_not_asked_again(blocking: bool, parallelism: int) -> None:
    asked: list[str] = []
    sink, store = Outside(), MemoryStore()
    job = Job("known")
    job.source(Known(asked, blocking=blocking)).sink(sink)
    run(job, store, config(parallelism=parallelism))
    assert sorted(sink.records) == sorted(expected())
    assert sorted(asked) == sorted(SPLITS * 2)


@pytest.mark.parametrize("blocking", [False, True])
def test_a_job_goes_on_from_every_checkpoint_of_splits_read_together(blocking: bool) -> None:
    def job(sink: Outside, clock: VirtualClock) -> Job:
        job = Job("known")
        lines = job.source(Known([], blocking=blocking), parallelism=2)
        slowly(lines.rebalance(), clock, 0.2).sink(sink)
        return job

    store, sink, clock = MemoryStore("memory://known"), Outside(), VirtualClock()
    settings = pressed(channel_buffers=1, buffer_records=2)
    run_pressed(job(sink, clock), store, settings, clock)
    taken = checkpoints(store)
    assert any(0 < len(committed_by(sink, each)) < len(sink.records) for each in taken)
    for checkpoint in taken:
        again, clock = outside_as_of(sink, checkpoint), VirtualClock()
        copy = copy_of(store)
        run_pressed(job(again, clock), copy, settings, clock, restore_slot=checkpoint.slot)
        assert sorted(again.records) == sorted(expected())
