"""A sweep deletes what nothing can name again, and refuses to guess."""

import asyncio

import pytest

from tests.support.damage import (
    Damage,
    a_descriptor,
    damaged,
    flipped,
    missing,
    of_a_newer_release,
    truncated,
)
from tests.support.jobs import contents, filled, store_of
from tidelog.catalog.audit import audit
from tidelog.catalog.sweep import SweepPlan, delete_garbage, plan_sweep
from tidelog.errors import ObjectNotFoundError, RestoreError
from tidelog.storage.memory import MemoryStore

OLD = {
    "segments/00000000-zombie-0000000009.seg": b"left by a crash",
    "tables/00000000/ab.sst": b"the same",
    "materializations/00000000/op-0-1.json": b"and this",
}
CURRENT = {"segments/00000004-p-0000000099.seg": b"being uploaded"}
FOREIGN = {"tables/readme.txt": b"not ours", "notes": b"either", "probe/a/b": b"a probe's"}


def plan_of(store: MemoryStore) -> SweepPlan:
    return asyncio.run(plan_sweep(store))


def test_unnamed_objects_of_older_generations_are_garbage() -> None:
    plan = plan_of(store_of({**filled(), **OLD, **CURRENT, **FOREIGN}))
    assert plan.generation == 4
    assert {info.name: info.size for info in plan.garbage} == {n: len(d) for n, d in OLD.items()}


def test_unnamed_objects_of_the_newest_generation_are_undecided() -> None:
    plan = plan_of(store_of({**filled(), **CURRENT}))
    assert [info.name for info in plan.undecided] == list(CURRENT)
    assert plan.garbage == ()


def test_a_plan_deletes_nothing() -> None:
    store = store_of({**filled(), **OLD})
    before = contents(store)
    plan_of(store)
    assert contents(store) == before


def test_a_sweep_deletes_the_garbage_and_nothing_else() -> None:
    kept = {**filled(), **CURRENT, **FOREIGN}
    store = store_of({**kept, **OLD})
    asyncio.run(delete_garbage(store, plan_of(store)))
    assert contents(store) == kept
    assert asyncio.run(audit(store, deep=True)).problems == ()


def test_what_is_already_deleted_counts_as_deleted() -> None:
    store = store_of({**filled(), **OLD})
    plan = plan_of(store)
    asyncio.run(store.delete(next(iter(OLD))))
    asyncio.run(delete_garbage(store, plan))
    assert contents(store) == filled()


@pytest.mark.parametrize("slot", ["00000004", "00000007", "00000009"])
@pytest.mark.parametrize("damage", [truncated, flipped, of_a_newer_release])
def test_an_unreadable_slot_stops_the_sweep(slot: str, damage: Damage) -> None:
    name = f"checkpoints/{slot}.json"
    with pytest.raises(RestoreError, match=f"{name}.*nothing was deleted"):
        plan_of(store_of({**damaged(filled(), name, damage), **OLD}))


@pytest.mark.parametrize("damage", [truncated, flipped, missing, of_a_newer_release])
def test_an_unreadable_descriptor_stops_the_sweep(damage: Damage) -> None:
    name, _ = a_descriptor(filled(), 9)
    with pytest.raises(RestoreError, match=name):
        plan_of(store_of({**damaged(filled(), name, damage), **OLD}))


def test_without_a_start_checkpoints_tell_which_generations_are_fenced() -> None:
    slots = {n: d for n, d in filled().items() if not n.endswith("00004.json")}
    plan = plan_of(store_of({**slots, **OLD, **CURRENT}))
    assert plan.generation == 4
    assert {info.name for info in plan.garbage} == OLD.keys()


def test_a_store_without_slots_is_an_error() -> None:
    with pytest.raises(ObjectNotFoundError):
        plan_of(store_of(OLD))
