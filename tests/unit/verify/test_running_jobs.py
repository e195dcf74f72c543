"""What a running job drops while its store is verified is no damage.

Stores whose job has changed between two runs are verified like any other.

Checkpoints with in-flight data: every reader knows what their segments hold besides the log.
"""

import asyncio
from functools import cache
from typing import Any

import pytest

from tests.support.clock import VirtualClock
from tests.support.damage import damaged, missing
from tests.support.faults import Fault, FaultKind, FaultyStore
from tests.support.jobs import Dropping, contents, store_of, virtual_effects
from tests.support.pipelines import Outside, words
from tests.support.pressure import keyed_job, numbered, pressed, run_pressed
from tests.unit.runtime.test_changed_types import counts, run, stopped
from tests.unit.verify.stores import (
    Objects,
    assert_sound,
    needed_by,
    report_on,
    small,
    verdicts,
    verified,
    with_objects,
    with_verdict,
)
from tidelog import Job, StoreUnreachableError, UploadConfig
from tidelog.catalog.audit import audit
from tidelog.catalog.inventory import read_slots
from tidelog.checkpoint.manifest import Author, Start, encode_entry
from tidelog.ids import Generation, Slot
from tidelog.storage import object_names
from tidelog.storage.memory import MemoryStore

OLDEST, NEWEST = 5, 8


@pytest.mark.parametrize("dropped", [(5,), (5, 6), (5, 6, 7)])
def test_checkpoints_that_are_dropped_meanwhile_are_gone_and_no_problem(
    dropped: tuple[int, ...],
) -> None:
    users = {name: needed_by(small(), name) for name in small()}
    gone = [name for name, slots in users.items() if slots and slots <= set(dropped)]
    report = report_on(Dropping(small(), f"checkpoints/{NEWEST:08d}.json", gone))
    assert report.problems == () and report.passed
    expected = {n: "gone" if n in dropped else "sound" for n in range(OLDEST, NEWEST + 1)}
    assert verdicts(report) == expected
    assert not {n for _, _, at in report.unchecked for n in at} & set(dropped)


class Sweeping(MemoryStore):
    """A new start counts the oldest checkpoint no more; a sweep takes its objects, not its slot."""

    async def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        data = await super().get(name, start, length)
        if name == f"checkpoints/{NEWEST:08d}.json":
            author, counted = Author(Generation(9), "attempt"), ((Slot(OLDEST + 1), Slot(NEWEST)),)
            begun = Start(Slot(9), author, 0, "", history=counted)
            await self.put("checkpoints/00000009.json", encode_entry(begun))
            for gone in small():
                if needed_by(small(), gone) == {OLDEST} and object_names.slot_of(gone) is None:
                    await self.delete(gone)
        return data


def test_a_checkpoint_that_counts_no_more_may_lose_its_objects_before_its_slot() -> None:
    store = with_objects(Sweeping(), small())
    report = report_on(store)
    assert report.problems == () and report.passed
    assert verdicts(report) == {5: "gone", 6: "sound", 7: "sound", 8: "sound"}
    assert asyncio.run(audit(with_objects(Sweeping(), small()))).problems == ()


class Restarting(MemoryStore):
    """A new start of the job writes its slot, and a segment, while the store is listed."""

    async def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        data = await super().get(name, start, length)
        if name == f"checkpoints/{NEWEST:08d}.json":
            author = Author(Generation(9), "attempt")
            await self.put("checkpoints/00000009.json", encode_entry(Start(Slot(9), author, 0, "")))
            await self.put(object_names.segment(Generation(9), "process", 1), b"its first segment")
        return data


def test_a_job_that_starts_meanwhile_is_no_gap_between_generations() -> None:
    assert_sound(report_on(with_objects(Restarting(), small())))


def test_a_store_out_of_reach_is_an_error_and_no_damage() -> None:
    effects = virtual_effects()
    fault = Fault(FaultKind.FAIL, operation="get", prefix="segments/")
    with pytest.raises(StoreUnreachableError):
        report_on(FaultyStore(store_of(small()), [fault], effects.clock))


def counting(**aggregate: Any) -> Job:
    return counts(words(length=200), Outside(), **aggregate)


@pytest.mark.parametrize("parallelism", [2, 3])
def test_a_store_is_sound_after_its_values_were_migrated(parallelism: int) -> None:
    store = MemoryStore("memory://migrated")
    stopped(counting(), store, retain=20)
    changed = counting(value_of=str, value_type=str, migrate=str)
    stopped(changed, store, "migrated", parallelism=parallelism, retain=20)
    assert_sound(report_on(store))
    run(changed, store, parallelism=parallelism, retain=20)
    assert_sound(report_on(store))


def test_a_store_is_sound_after_an_operator_was_dropped_and_came_back() -> None:
    store = MemoryStore("memory://dropped")
    stopped(counting(), store, retain=20)
    stopped(counting(name="total"), store, "dropped", retain=20, allow_dropped_state=("count",))
    assert_sound(report_on(store))
    run(counting(), store, retain=20, allow_dropped_state=("total",))
    assert_sound(report_on(store))


@cache
def pressured(inline_bytes: int) -> Objects:
    """A job whose barriers overtake; in-flight data lies in segments, or small in manifests."""
    store, clock = MemoryStore(), VirtualClock()
    settings = pressed(upload=UploadConfig(inline_bytes=inline_bytes), table="memory")
    run_pressed(keyed_job(numbered(4, 20), Outside(), clock), store, settings, clock)
    return contents(store)


def in_segments(objects: Objects) -> dict[str, list[int]]:
    """Segments that in-flight data lies in, and the slots that need it."""
    checkpoints = asyncio.run(read_slots(store_of(objects))).checkpoints
    found: dict[str, list[int]] = {}
    for slot, checkpoint in checkpoints.items():
        for _, state in checkpoint.subtasks():
            for part in state.in_flight.log if state.in_flight is not None else ():
                found.setdefault(part.segment, []).append(slot)
    return found


@pytest.mark.parametrize("inline_bytes", [0, 20_000])
def test_checkpoints_with_in_flight_data_are_sound(inline_bytes: int) -> None:
    objects = pressured(inline_bytes)
    assert bool(in_segments(objects)) is (inline_bytes == 0)
    assert verified(objects).passed
    assert asyncio.run(audit(store_of(objects), deep=True)).problems == ()


def test_lost_in_flight_data_costs_the_checkpoints_that_need_it() -> None:
    objects = pressured(0)
    name, slots = next(iter(in_segments(objects).items()))
    report = verified(damaged(objects, name, missing))
    assert {problem.where for problem in report.problems} == {name}
    assert with_verdict(report, "unusable") >= set(slots)
    assert all(problem.partitions for problem in report.problems)
