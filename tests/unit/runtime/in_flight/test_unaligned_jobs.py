"""Whole jobs under back-pressure whose barriers overtake: nothing is lost, doubled or
reordered, whichever checkpoint a restart resumes from. Records of types that a job no longer
has are refused at first, or dropped.

Records in flight find their operator whatever shape the job has after a restart.
"""

import asyncio
import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import pytest

from tests.support.clock import VirtualClock, in_virtual_time
from tests.support.depth import in_pairs, more_in_depth
from tests.support.pipelines import Outside, Portions
from tests.support.pressure import (
    PressedJob,
    SlowOutside,
    assert_in_order,
    checkpoints,
    copy_of,
    keyed_job,
    numbered,
    numbering,
    outside_as_of,
    overtaken,
    pressed,
    resumed,
    resumed_slowly,
    run_pressed,
    slowly,
    under_pressure,
)
from tidelog import CheckpointConfig, Job, JobRunner, RestoreError, status_of
from tidelog.checkpoint.finished import fully_finished
from tidelog.checkpoint.manifest import Checkpoint
from tidelog.cli.run.reports import phase_line
from tidelog.errors import SerializationError
from tidelog.storage.memory import MemoryStore


class Parcel:
    """A user's own type of record, which is no data type."""

    def __init__(self, key: str, split: int, number: int) -> None:
        self.key, self.split, self.number = key, split, number


def keyed(source: Portions) -> PressedJob:
    return functools.partial(keyed_job, source)


@in_pairs(parallelism=[1, 2, 3], mode=["always", "timeout"], changelog=[True, False])
def test_every_checkpoint_resumes_with_all_records_once_and_in_order(
    parallelism: int, mode: Any, changelog: bool
) -> None:
    source = numbered(4, more_in_depth(20, 40))
    settings, job = pressed(mode, parallelism=parallelism, changelog=changelog), keyed(source)
    sink, objects = under_pressure(job, settings)
    assert sorted(sink.records) == sorted(source.records)
    taken = checkpoints(objects)
    assert sum(overtaken(checkpoint) > 0 for checkpoint in taken) >= 3

    for checkpoint in taken[:-1]:
        again = resumed(job, objects, sink, checkpoint, settings)
        assert sorted(again.records) == sorted(source.records), f"from slot {checkpoint.slot}"
        assert_in_order(again.records)


def test_records_in_flight_are_stored_as_they_were_when_the_barrier_passed_them() -> None:
    source = numbered(4, 28)

    def counted(record: list[Any]) -> list[Any]:
        record[-1] += 1
        return record

    def job(sink: Outside, clock: VirtualClock) -> Job:
        job = Job("counted")
        lists = job.source(source, parallelism=4).map(lambda r: [*r, 0])
        slowly(lists.key_by(lambda r: r[0]).map(counted), clock, 0.2).map(tuple).sink(sink)
        return job

    expected = sorted((*record, 1) for record in source.records)
    sink, objects = under_pressure(job, pressed())
    assert sorted(sink.records) == expected
    for checkpoint in checkpoints(objects)[:-1]:
        assert sorted(resumed(job, objects, sink, checkpoint, pressed()).records) == expected


def test_an_aligned_checkpoint_under_pressure_waits_and_an_unaligned_one_does_not() -> None:
    def completed(mode: Any) -> int:
        source, sink, clock = numbered(4, 80), Outside(), VirtualClock()
        result = run_pressed(keyed_job(source, sink, clock), MemoryStore(), pressed(mode), clock)
        assert sorted(sink.records) == sorted(source.records)
        return result.checkpoints

    assert completed("always") > 2 * completed("off")


def test_broadcast_edges_stay_aligned_beside_one_that_overtakes() -> None:
    source, rules, objects = numbered(4, 40), numbered(1, 20), MemoryStore()
    sink, clock = Outside(), VirtualClock()
    settings = pressed("always", parallelism=2)

    def job(sink: Outside, clock: VirtualClock) -> Job:
        job = Job("rules")
        all_of = job.source(rules, name="rules", parallelism=1).broadcast()
        some = job.source(source, parallelism=4).rebalance()
        slowly(some.union(all_of), clock, 0.2).sink(sink)
        return job

    effects = in_virtual_time(1, clock)
    runner = JobRunner(job(sink, clock), objects, settings, effects)
    asyncio.run(runner.run())
    running = replace(status_of(runner), phase="running")
    assert "barriers never overtake on rules -> slow" in phase_line(running)
    expected = sorted(source.records + 2 * rules.records)
    assert sorted(sink.records) == expected
    taken = checkpoints(objects)
    assert any(overtaken(checkpoint) for checkpoint in taken)
    for checkpoint in taken[:-1]:
        assert sorted(resumed(job, objects, sink, checkpoint, settings).records) == expected


def test_barriers_late_in_outputs_and_in_tasks_overtake() -> None:
    source = numbered()
    sink, objects = under_pressure(keyed(source), pressed("timeout"))
    assert sorted(sink.records) == sorted(source.records)
    taken = [state for found in checkpoints(objects)[:-1] for state in found.subtasks()]
    assert {"source", "slow"} <= {of.id for of, state in taken if state.in_flight is not None}


def test_a_type_that_cannot_be_stored_keeps_barriers_aligned_and_says_so() -> None:
    source, sink, objects, clock = numbered(), Outside(), MemoryStore(), VirtualClock()
    job = typed(Parcel)(sink, clock)
    settings = pressed("always", checkpoint=CheckpointConfig(1.5, 1e6, tolerable_failures=1))
    runner = JobRunner(job, objects, settings, in_virtual_time(1, clock))
    asyncio.run(runner.run())
    assert sorted(sink.records) == sorted(source.records)
    assert runner.incarnation.driver.metrics.failed == 1
    kept = runner.incarnation.driver.reports.kept_aligned
    assert "Parcel" in kept and "record_types" in kept
    assert not any(map(overtaken, checkpoints(objects)))
    status = status_of(runner).checkpoints
    assert status.kept_aligned == kept


def test_a_restore_told_to_drop_what_is_in_flight_loses_exactly_that() -> None:
    source = numbered()
    sink, objects = under_pressure(keyed(source), pressed())
    second = checkpoints(objects)[1]
    again, clock = outside_as_of(sink, second), VirtualClock()
    settings = pressed(drop_in_flight=True)
    effects = in_virtual_time(2, clock)
    job = keyed_job(source, again, clock)
    runner = JobRunner(job, copy_of(objects), settings, effects, restore_checkpoint=second.slot)
    asyncio.run(runner.run())
    assert runner.incarnation.dropped_buffers == overtaken(second) > 0
    running = replace(status_of(runner), phase="running")
    assert f"{overtaken(second)} buffers of records in flight DROPPED" in phase_line(running)
    lost = set(source.records) - set(again.records)
    assert len(lost) == len(source.records) - len(again.records)
    assert overtaken(second) <= len(lost) <= 2 * overtaken(second), "buffers of at most two records"


class Point(NamedTuple):
    key: str
    split: int
    number: int


@dataclass(frozen=True, slots=True)
class Purchase:
    key: str
    split: int
    number: int

    def __post_init__(self) -> None:
        assert self.number >= 0


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
    with pytest.raises(SerializationError, match=r"Parcel.*record_types"):
        run_pressed(job, objects, pressed(parallelism=2), clock, restore_checkpoint=held[0].slot)
    assert objects._objects == before, "the job that runs is not fenced"


def test_a_type_that_is_gone_is_refused_and_dropping_the_records_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    objects, sink, held = taken(Purchase)
    monkeypatch.delitem(globals(), "Purchase")
    before = dict(objects._objects)
    again, clock = outside_as_of(sink, held[0]), VirtualClock()
    settings, at = pressed(parallelism=2), held[0].slot
    with pytest.raises(SerializationError, match=r"Purchase.*--drop-in-flight"):
        run_pressed(typed(Point)(again, clock), objects, settings, clock, restore_checkpoint=at)
    assert objects._objects == before
    dropping = pressed(parallelism=2, drop_in_flight=True)
    run_pressed(typed(Point)(again, clock), objects, dropping, clock, restore_checkpoint=at)
    lost = set(numbered().records) - set(again.records)
    assert 0 < len(lost) <= 2 * overtaken(held[0])


Build = Callable[[Outside], Job]


def one_sink(sink: Outside) -> Job:
    """Keyed state in front of a slow sink of one subtask."""
    job = Job("one-sink")
    numbering(job.source(numbered())).sink(sink, parallelism=1)
    return job


def check(sink: Outside) -> None:
    """Every record once, and of every key in the order in which state saw them."""
    found = [record[:3] for record in sink.records]
    assert sorted(found) == sorted(numbered().records)
    by_key: dict[str, list[int]] = {}
    for key, _, _, number in sink.records:
        by_key.setdefault(key, []).append(number)
    for key, numbers in by_key.items():
        assert numbers == list(range(len(numbers))), key


def destinations(checkpoint: Checkpoint) -> set[tuple[str, int]]:
    """Where the records in flight are on their way to."""
    held = [subtask.in_flight for _, subtask in checkpoint.subtasks()]
    return {to for ref in held if ref is not None for to in ref.inputs}


def taken_under_pressure(
    job: Build, parallelism: int, **settings: Any
) -> tuple[MemoryStore, Outside, Checkpoint]:
    """A store, what was committed, and a checkpoint with records in flight."""
    clock, objects = VirtualClock(), MemoryStore("memory://shapes")
    sink = SlowOutside(clock)
    run_pressed(job(sink), objects, pressed(parallelism=parallelism, **settings), clock)
    check(sink)
    held = [checkpoint for checkpoint in checkpoints(objects) if overtaken(checkpoint)]
    return objects, sink, held[1]


def test_records_behind_an_operator_that_finished_find_theirs_beside_it() -> None:
    """The keyed operator has ended and the sink has not: they cannot share a task."""
    ends_apart = {"channel_buffers": 60, "finish_once": True}
    objects, sink, _ = taken_under_pressure(one_sink, 3, **ends_apart)
    late = [
        checkpoint
        for checkpoint in checkpoints(objects)
        if destinations(checkpoint) == {("sink", 0)}
        and {o.id for o in checkpoint.operators if fully_finished(o)} == {"source", "process"}
    ]
    assert late, "the sink is slow, so the others end long before it"
    for chosen in late:
        check(resumed_slowly(one_sink, copy_of(objects), sink, chosen, 1))


def test_an_input_that_is_gone_is_refused_before_anything_is_written() -> None:
    def job(sink: Outside, *, both: bool) -> Job:
        job = Job("inputs")
        source = job.source(numbered())
        none = source.filter(lambda r: False)
        none.map(lambda r: r).sink(Outside(), name="nowhere")
        numbering(none.union(source) if both else source).sink(sink)
        return job

    two_inputs, one_input = partial(job, both=True), partial(job, both=False)
    objects, sink, chosen = taken_under_pressure(two_inputs, 2)
    assert ("process", 1) in destinations(chosen)
    before = dict(objects._objects)
    with pytest.raises(RestoreError, match=r"'process'.*input number 1"):
        resumed_slowly(one_input, objects, sink, chosen, 2)
    assert objects._objects == before, "the job that runs is not fenced"
