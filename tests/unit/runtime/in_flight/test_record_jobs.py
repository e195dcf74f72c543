"""Jobs whose records are of a user's types, under back-pressure and with barriers that overtake."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from tests.support.clock import VirtualClock
from tests.support.depth import more_in_depth
from tests.support.pipelines import Outside
from tests.support.pressure import (
    PressedJob,
    assert_in_order,
    checkpoints,
    numbered,
    outside_as_of,
    overtaken,
    pressed,
    resumed,
    run_pressed,
    slowly,
    under_pressure,
)
from tidelog import Job, JsonLines, Row, StatefulProcessor, StatefulProcessorHandle, TimerValues
from tidelog.checkpoint.manifest import Checkpoint
from tidelog.errors import UnstorableError
from tidelog.storage.memory import MemoryStore


class Point(NamedTuple):
    key: str
    split: int
    number: int


@dataclass(frozen=True, slots=True)
class Order:
    key: str
    split: int
    number: int

    def __post_init__(self) -> None:
        assert self.number >= 0


class Event(msgspec.Struct):
    key: str
    split: int
    number: int


class Parcel:
    """No data type."""

    def __init__(self, key: str, split: int, number: int) -> None:
        self.key, self.split, self.number = key, split, number


def row(key: str, split: int, number: int) -> Row:
    return Row(key=key, split=split, number=number)


class Echo(StatefulProcessor):
    """Yields the rows of a key again."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.count = handle.getValueState("count", "n long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: TimerValues) -> Any:
        for each in rows:
            yield Row(key=each.key, split=each.split, number=each.number, seen=[Row(by=key[0])])


Make = Callable[..., Any]


def typed(make: Make, *types: type) -> PressedJob:
    """Records of a type between keyed state and a slow operator with keyed input."""

    def job(sink: Outside, clock: VirtualClock) -> Job:
        job = Job("typed", record_types=types)
        made = job.source(numbered(), parallelism=4).map(lambda r: make(*r))
        slow = slowly(made.key_by(lambda r: r.key), clock, 0.2)
        slow.map(lambda r: (r.key, r.split, r.number)).sink(sink)
        return job

    return job


def taken(make: Make, *types: type) -> tuple[MemoryStore, Outside, list[Checkpoint]]:
    """A store, what was committed, and the checkpoints with records in flight."""
    sink, objects = under_pressure(typed(make, *types), pressed(parallelism=2))
    assert sorted(sink.records) == sorted(numbered().records)
    return objects, sink, [c for c in checkpoints(objects) if overtaken(c)]


def types_in(checkpoint: Checkpoint) -> set[str]:
    held = [subtask.in_flight for _, subtask in checkpoint.subtasks()]
    return {name for ref in held if ref is not None for name in ref.types}


@pytest.mark.parametrize("make", [row, Point, Order, Event, Parcel], ids=lambda make: make.__name__)
def test_records_of_types_that_the_job_may_have_are_in_flight_and_come_back(make: Make) -> None:
    """A type that is no data type is named by the job."""
    types = (Parcel,) if make is Parcel else ()
    objects, sink, held = taken(make, *types)
    assert len(held) >= 3
    assert types_in(held[0]) == (set() if make is row else {f"{__name__}:{make.__name__}"})
    for chosen in held[: more_in_depth(1, 3)]:
        again = resumed(typed(make, *types), objects, sink, chosen, pressed(parallelism=3))
        assert sorted(again.records) == sorted(numbered().records)
        assert_in_order(again.records)


def test_a_type_that_the_job_no_longer_names_is_refused_before_anything_is_written() -> None:
    objects, sink, held = taken(Parcel, Parcel)
    before, clock = dict(objects._objects), VirtualClock()
    job = typed(Parcel)(outside_as_of(sink, held[0]), clock)
    with pytest.raises(UnstorableError, match=r"Parcel.*record_types"):
        run_pressed(job, objects, pressed(parallelism=2), clock, restore_slot=held[0].slot)
    assert objects._objects == before, "the job that runs is not fenced"


def test_a_type_that_is_gone_is_refused_and_dropping_the_records_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    objects, sink, held = taken(Order)
    monkeypatch.delitem(globals(), "Order")
    before = dict(objects._objects)
    again, clock = outside_as_of(sink, held[0]), VirtualClock()
    settings, at = pressed(parallelism=2), held[0].slot
    with pytest.raises(UnstorableError, match=r"Order.*--drop-in-flight"):
        run_pressed(typed(Point)(again, clock), objects, settings, clock, restore_slot=at)
    assert objects._objects == before
    dropping = pressed(parallelism=2, drop_in_flight=True)
    run_pressed(typed(Point)(again, clock), objects, dropping, clock, restore_slot=at)
    lost = set(numbered().records) - set(again.records)
    assert 0 < len(lost) <= 2 * overtaken(held[0])


def test_rows_of_json_lines_and_of_a_processor_are_in_flight(tmp_path: Path) -> None:
    """The job of the README, its sink too slow for it."""
    for split in range(4):
        rows = [{"key": f"k{n % 5}", "split": split, "number": n} for n in range(60)]
        (tmp_path / f"{split}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))

    def job(sink: Outside, clock: VirtualClock) -> Job:
        job = Job("rows")
        orders = JsonLines(tmp_path, chunk_bytes=120)
        echoed = job.source(orders).key_by(lambda r: r.key).transform_with_state(Echo)
        slow = slowly(echoed.key_by(lambda r: (r.key, r.seen[0].by)), clock, 0.3)
        slow.map(lambda r: (r.key, r.split, r.number)).sink(sink)
        return job

    expected = sorted((f"k{n % 5}", split, n) for split in range(4) for n in range(60))
    settings = pressed(parallelism=2)
    sink, objects = under_pressure(job, settings)
    assert sorted(sink.records) == expected
    held = [checkpoint for checkpoint in checkpoints(objects) if overtaken(checkpoint)]
    assert len(held) >= 3
    for chosen in held[:4]:
        again = resumed(job, objects, sink, chosen, settings)
        assert sorted(again.records) == expected
        assert_in_order(again.records)
