"""Whole jobs under back-pressure whose barriers overtake: nothing is lost, doubled or reordered,
whichever checkpoint a restart resumes from."""

import asyncio
import functools
from dataclasses import replace
from random import Random
from typing import Any

from tests.support.clock import VirtualClock
from tests.support.depth import in_pairs, more_in_depth
from tests.support.pipelines import Outside, Portions
from tests.support.pressure import (
    PressedJob,
    assert_in_order,
    checkpoints,
    copy_of,
    keyed_job,
    numbered,
    outside_as_of,
    overtaken,
    pressed,
    resumed,
    run_pressed,
    slowly,
    under_pressure,
)
from tidelog import Effects, Job, JobRunner, Schedule, status_of
from tidelog.cli.run.reports import phase_line
from tidelog.effects import InlineOffload
from tidelog.storage.memory import MemoryStore


class Order:
    """A user's own type of record, which is no data type."""

    def __init__(self, key: str, split: int, number: int) -> None:
        self.key = key
        self.split = split
        self.number = number


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

    effects = Effects(clock, Random(1), InlineOffload())
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
    job = Job("orders")
    orders = job.source(source, parallelism=4).map(lambda r: Order(*r))
    slowly(orders.key_by(lambda o: o.key), clock, 0.2).map(
        lambda o: (o.key, o.split, o.number)
    ).sink(sink)
    settings = pressed("always", checkpoint=Schedule(1.5, 1e6, tolerable_failures=1))
    runner = JobRunner(job, objects, settings, Effects(clock, Random(1), InlineOffload()))
    asyncio.run(runner.run())
    assert sorted(sink.records) == sorted(source.records)
    assert runner.incarnation is not None and runner.incarnation.driver.metrics.failed == 1
    kept = runner.incarnation.driver.reports.kept_aligned
    assert kept is not None and "Order" in kept and "record_types" in kept
    assert not any(map(overtaken, checkpoints(objects)))
    status = status_of(runner).checkpoints
    assert status.kept_aligned == kept


def test_a_restore_told_to_drop_what_is_in_flight_loses_exactly_that() -> None:
    source = numbered()
    sink, objects = under_pressure(keyed(source), pressed())
    second = checkpoints(objects)[1]
    again, clock = outside_as_of(sink, second), VirtualClock()
    settings = pressed(drop_in_flight=True)
    effects = Effects(clock, Random(2), InlineOffload())
    job = keyed_job(source, again, clock)
    runner = JobRunner(job, copy_of(objects), settings, effects, restore_slot=second.slot)
    asyncio.run(runner.run())
    assert runner.incarnation is not None
    assert runner.incarnation.dropped_buffers == overtaken(second) > 0
    running = replace(status_of(runner), phase="running")
    assert f"{overtaken(second)} buffers of records in flight DROPPED" in phase_line(running)
    lost = set(source.records) - set(again.records)
    assert len(lost) == len(source.records) - len(again.records)
    assert overtaken(second) <= len(lost) <= 2 * overtaken(second), "buffers of at most two records"
