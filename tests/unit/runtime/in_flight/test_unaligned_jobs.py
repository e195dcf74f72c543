"""Whole jobs under back-pressure whose barriers overtake: nothing is lost, doubled or reordered,
whichever checkpoint a restart resumes from."""

from typing import Any

import pytest

from tests.support.clock import VirtualClock
from tests.support.pipelines import Outside
from tests.support.pressure import (
    assert_in_order,
    checkpoints,
    copy_of,
    keyed_job,
    numbered,
    outside_as_of,
    overtaken,
    pressed,
    run_pressed,
    slowly,
)
from tidelog.runtime.graph import Job
from tidelog.storage.memory import MemoryStore


def store() -> MemoryStore:
    return MemoryStore("memory://pressure")


@pytest.mark.parametrize("parallelism", [1, 2, 3])
@pytest.mark.parametrize("mode", ["always", "timeout"])
@pytest.mark.parametrize("changelog", [True, False])
def test_every_checkpoint_resumes_with_all_records_once_and_in_order(
    parallelism: int, mode: Any, changelog: bool
) -> None:
    source, sink, objects, clock = numbered(), Outside(), store(), VirtualClock()
    settings = pressed(mode, parallelism=parallelism, changelog=changelog)
    run_pressed(keyed_job(source, sink, clock), objects, settings, clock)
    assert sorted(sink.records) == sorted(source.records)
    taken = checkpoints(objects)
    assert sum(overtaken(checkpoint) > 0 for checkpoint in taken) >= 3

    for checkpoint in taken[:-1]:
        again, clock = outside_as_of(sink, checkpoint), VirtualClock()
        job = keyed_job(source, again, clock)
        run_pressed(job, copy_of(objects), settings, clock, restore_slot=checkpoint.slot, seed=2)
        assert sorted(again.records) == sorted(source.records), f"from slot {checkpoint.slot}"
        assert_in_order(again.records)


def test_an_aligned_checkpoint_under_pressure_waits_and_an_unaligned_one_does_not() -> None:
    def completed(mode: Any) -> int:
        source, sink, objects, clock = numbered(4, 80), Outside(), store(), VirtualClock()
        result = run_pressed(keyed_job(source, sink, clock), objects, pressed(mode), clock)
        assert sorted(sink.records) == sorted(source.records)
        return result.checkpoints

    assert completed("always") > 2 * completed("off")


def test_broadcast_edges_stay_aligned_beside_one_that_overtakes() -> None:
    source, rules, objects = numbered(), numbered(1, 20), store()
    sink, clock = Outside(), VirtualClock()
    settings = pressed("always", parallelism=2)

    def job(sink: Outside, clock: VirtualClock) -> Job:
        job = Job("rules")
        all_of = job.source(rules, name="rules", parallelism=1).broadcast()
        some = job.source(source, parallelism=4).rebalance()
        slowly(some.union(all_of), clock, 0.2).sink(sink)
        return job

    run_pressed(job(sink, clock), objects, settings, clock)
    expected = sorted(source.records + 2 * rules.records)
    assert sorted(sink.records) == expected
    taken = checkpoints(objects)
    assert any(overtaken(checkpoint) for checkpoint in taken)
    for checkpoint in taken[:-1]:
        again, clock = outside_as_of(sink, checkpoint), VirtualClock()
        run_pressed(
            job(again, clock), copy_of(objects), settings, clock, restore_slot=checkpoint.slot
        )
        assert sorted(again.records) == expected
