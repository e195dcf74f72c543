"""The audit finds every damage, says which checkpoints it costs, and writes nothing.

A garbage collection deletes what nothing can name again, and refuses to guess.
"""

import asyncio
import math
from collections.abc import Callable, Mapping

import msgspec
import pytest

from tests.support.damage import (
    Damage,
    a_descriptor,
    a_segment,
    a_table_file,
    checkpoint_in,
    damaged,
    flipped,
    missing,
    needs,
    of_a_newer_release,
    truncated,
)
from tests.support.jobs import (
    Dropping,
    config,
    contents,
    every_kind,
    filled,
    restarted,
    run,
    store_of,
    word_count,
)
from tidelog import JobConfig, MaterializeConfig, UploadConfig
from tidelog.catalog.audit import AuditReport, audit
from tidelog.catalog.gc import GarbagePlan, plan_gc
from tidelog.catalog.locate import find
from tidelog.checkpoint.invariants import Invariant
from tidelog.checkpoint.manifest import decode_entry, encode_entry
from tidelog.errors import RestoreError
from tidelog.ids import Slot
from tidelog.storage import object_names
from tidelog.storage.memory import MemoryStore

START, NEWEST = "checkpoints/00000004.json", "checkpoints/00000009.json"


def users(objects: Mapping[str, bytes], name: str) -> tuple[int, ...]:
    """The checkpoints that need an object."""
    return tuple(slot for slot in (7, 8, 9) if name in needs(objects, slot))


def report_of(objects: Mapping[str, bytes], *, deep: bool = False) -> AuditReport:
    return asyncio.run(audit(store_of(objects), deep=deep))


@pytest.mark.parametrize(
    "settings",
    [
        config(),
        config(changelog=False),
        config(upload=UploadConfig(inline_bytes=50_000)),
        config(table="memory"),
    ],
    ids=["segments", "no changelog", "inline", "memory"],
)
def test_what_a_job_leaves_behind_is_sound(settings: JobConfig) -> None:
    store = restarted(word_count, settings)
    for deep in (False, True):
        report = asyncio.run(audit(store, deep=deep))
        assert report.problems == ()
        restorable = [verdict.checkpoint for verdict in report.checkpoints if verdict.restorable]
        assert restorable == [7, 8, 9] and report.newest_restorable == 9


def test_a_missing_object_costs_exactly_the_checkpoints_that_need_it() -> None:
    objects = filled()
    for name in objects:
        if object_names.slot_of(name) is not None:
            continue
        needed_by = users(objects, name)
        found = report_of(damaged(objects, name, missing)).problems
        assert [(p.where, p.check) for p in found] == (
            [(name, Invariant.OBJECTS)] if needed_by else []
        )
        assert [problem.unusable for problem in found] == ([needed_by] if needed_by else [])


@pytest.mark.parametrize("part", [a_table_file, a_segment])
def test_a_flipped_bit_is_found_by_a_deep_look_only(part: Callable[..., str]) -> None:
    objects = filled()
    name = part(objects, 9)
    hurt = damaged(objects, name, flipped)
    assert report_of(hurt).problems == ()
    report = report_of(hurt, deep=True)
    assert {p.where for p in report.problems} == {name}
    assert {p.check for p in report.problems} == {Invariant.READABLE}
    assert {slot for p in report.problems for slot in p.unusable} == set(users(objects, name))


@pytest.mark.parametrize("damage", [truncated, flipped])
def test_a_damaged_descriptor_costs_its_checkpoints(damage: Damage) -> None:
    objects = filled()
    name, _ = a_descriptor(objects, 9)
    report = report_of(damaged(objects, name, damage))
    assert {p.where for p in report.problems} == {name}
    assert {slot for p in report.problems for slot in p.unusable} == set(users(objects, name))


@pytest.mark.parametrize("damage", [truncated, flipped, of_a_newer_release])
def test_an_unreadable_checkpoint_is_reported_and_the_others_checked(damage: Damage) -> None:
    report = report_of(damaged(filled(), NEWEST, damage))
    (problem,) = report.problems
    assert problem.where == NEWEST
    assert problem.unusable == (9,)
    assert problem.newer_format == (damage is of_a_newer_release)
    assert report.newest_restorable == 8
    assert [v.kind for v in report.checkpoints][-1] == "unreadable"


@pytest.mark.parametrize(
    ("damage", "check", "unusable"),
    [(flipped, Invariant.READABLE, (4,)), (missing, Invariant.STARTS, ())],
)
def test_a_damaged_start_is_found_and_costs_no_checkpoint(
    damage: Damage, check: Invariant, unusable: tuple[int, ...]
) -> None:
    report = report_of(damaged(filled(), START, damage))
    (problem,) = report.problems
    assert (problem.where, problem.check, problem.unusable) == (START, check, unusable)
    assert report.newest_restorable == 9


def test_a_manifest_under_another_slots_name_cannot_be_restored() -> None:
    objects = filled()
    report = report_of({**objects, "checkpoints/00000010.json": objects[NEWEST]})
    (problem,) = report.problems
    assert problem.check == Invariant.READABLE and problem.unusable == (10,)
    assert problem.expected == "the manifest of checkpoint 10"
    assert problem.found == "that of checkpoint 9"
    assert report.checkpoints[-1].restorable is False and report.newest_restorable == 9


def test_a_checkpoint_that_a_running_job_drops_meanwhile_is_no_finding() -> None:
    memory = MemoryStore()
    run(memory, every_kind(), config(materialize=MaterializeConfig(interval=1.0)))
    objects = contents(memory)
    oldest, *newer = sorted(
        s for s in map(object_names.slot_of, objects) if s is not None and s > 0
    )
    only_oldest = needs(objects, oldest).difference(*(needs(objects, slot) for slot in newer))
    assert only_oldest
    dropped = (object_names.checkpoint(oldest), *only_oldest)
    store = Dropping(objects, object_names.checkpoint(newer[-1]), dropped)
    report = asyncio.run(audit(store, deep=True))
    assert report.problems == ()
    assert [verdict.checkpoint for verdict in report.checkpoints if verdict.restorable] == newer


def test_every_kind_of_state_is_in_the_store_under_test() -> None:
    kinds = {s.kind for o in checkpoint_in(filled(), 9).operators for s in o.states}
    assert kinds == {"splits", "timers", "value", "list", "map"}
    assert every_kind().name == checkpoint_in(filled(), 9).job


OLD = {
    "segments/00000000-zombie-0000000009.seg": b"left by a crash",
    "tables/00000000/ab.sst": b"the same",
    "materializations/00000000/op-0-1.json": b"and this",
}
CURRENT = {"segments/00000004-p-0000000099.seg": b"being uploaded"}
FOREIGN = {"tables/readme.txt": b"not ours", "notes": b"either", "probe/a/b": b"a probe's"}


def plan_of(store: MemoryStore) -> GarbagePlan:
    return asyncio.run(plan_gc(store))


def test_unnamed_objects_of_older_generations_are_garbage_and_of_the_newest_undecided() -> None:
    plan = plan_of(store_of({**filled(), **OLD, **CURRENT, **FOREIGN}))
    assert plan.generation == 4
    assert {info.name: info.size for info in plan.garbage} == {n: len(d) for n, d in OLD.items()}
    assert [info.name for info in plan.undecided] == list(CURRENT)


class Advancing(MemoryStore):
    """A job completes a checkpoint and drops the only other one between a listing and a read."""

    def __init__(self, times: float) -> None:
        super().__init__("memory://advancing")
        self.times = 0.0
        for name, data in {**filled(), **OLD}.items():
            if name not in {"checkpoints/00000007.json", "checkpoints/00000008.json"}:
                asyncio.run(self.put(name, data))
        self.times = times

    async def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        newest = max(each for each in self._objects if each.startswith("checkpoints/"))
        if name == newest and self.times > 0:
            self.times -= 1
            entry = decode_entry(await super().get(name), name)
            newer = msgspec.structs.replace(entry, slot=Slot(entry.slot + 1))
            await super().put(object_names.checkpoint(newer.slot), encode_entry(newer))
            await self.delete(name)
        return await super().get(name, start, length)


@pytest.mark.parametrize("times", [1, 3])
def test_a_checkpoint_that_is_dropped_while_it_is_read_takes_no_reference_along(times: int) -> None:
    store, needed = Advancing(times), needs(filled(), 9)
    garbage = {info.name for info in plan_of(store).garbage}
    assert store.times == 0 and garbage >= OLD.keys() and not garbage & needed
    store.times = math.inf
    with pytest.raises(RestoreError, match="newest checkpoint to stay"):
        plan_of(store)


def test_the_newest_checkpoint_is_found_though_a_job_drops_it_while_it_is_read() -> None:
    store = Advancing(3)
    assert asyncio.run(find(store, None)).slot == 12
    store.times = math.inf
    with pytest.raises(RestoreError, match="newest checkpoint to stay"):
        asyncio.run(find(store, None))


@pytest.mark.parametrize("slot", ["00000004", "00000007", "00000009"])
@pytest.mark.parametrize("damage", [truncated, flipped, of_a_newer_release])
def test_an_unreadable_slot_stops_the_garbage_collection(slot: str, damage: Damage) -> None:
    name = f"checkpoints/{slot}.json"
    with pytest.raises(RestoreError, match=f"{name}.*nothing was deleted"):
        plan_of(store_of({**damaged(filled(), name, damage), **OLD}))


@pytest.mark.parametrize("damage", [truncated, flipped, missing, of_a_newer_release])
def test_an_unreadable_descriptor_stops_the_garbage_collection(damage: Damage) -> None:
    name, _ = a_descriptor(filled(), 9)
    with pytest.raises(RestoreError, match=name):
        plan_of(store_of({**damaged(filled(), name, damage), **OLD}))


def test_without_a_start_checkpoints_tell_which_generations_are_fenced() -> None:
    slots = {n: d for n, d in filled().items() if not n.endswith("00004.json")}
    plan = plan_of(store_of({**slots, **OLD, **CURRENT}))
    assert plan.generation == 4
    assert {info.name for info in plan.garbage} == OLD.keys()
