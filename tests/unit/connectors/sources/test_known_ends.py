"""A reader that knows its end is not asked for it, and its split is finished all the same."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.pipelines import Outside, config, run
from tidelog import Job, Source, SplitReader
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
