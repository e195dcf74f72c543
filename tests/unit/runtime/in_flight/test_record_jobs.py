"""Records in flight of types that a job no longer has: refused at first, or dropped."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

from tests.support.clock import VirtualClock
from tests.support.pipelines import Outside
from tests.support.pressure import (
    PressedJob,
    checkpoints,
    numbered,
    outside_as_of,
    overtaken,
    pressed,
    run_pressed,
    slowly,
    under_pressure,
)
from tidelog import Job
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


class Parcel:
    """No data type."""

    def __init__(self, key: str, split: int, number: int) -> None:
        self.key, self.split, self.number = key, split, number


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
