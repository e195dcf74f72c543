"""Damage of every kind to every object is found, named, and costs what needs the object.

What a running job drops while its store is verified is no damage.

Stores whose job has changed between two runs are verified like any other.

Checkpoints with in-flight data: every reader knows what their segments hold besides the log.
"""

import asyncio
from collections.abc import Callable, Iterator
from functools import cache
from itertools import combinations
from typing import Any

import pytest
from msgspec.structs import replace

from tests.support.clock import VirtualClock
from tests.support.damage import (
    checkpoint_in,
    damaged,
    emptied,
    flipped,
    flipped_at,
    lengthened,
    missing,
    truncated,
)
from tests.support.depth import more_in_depth
from tests.support.faults import Fault, FaultKind, FaultyStore
from tests.support.jobs import Dropping, contents, filled, store_of, virtual_effects
from tests.support.pipelines import Outside, words
from tests.support.pressure import keyed_job, numbered, pressed, run_pressed
from tests.unit.runtime.test_changed_types import counts, run, stopped
from tests.unit.storage.encryption.test_encrypted_store import encrypted
from tests.unit.verify.stores import (
    Objects,
    assert_sound,
    needed_by,
    report_on,
    small,
    tiny,
    verdicts,
    verified,
    with_manifest,
    with_objects,
    with_subtask,
    with_verdict,
)
from tidelog import Job, StoreUnreachableError, UploadConfig
from tidelog.catalog.audit import audit
from tidelog.catalog.inventory import read_slots
from tidelog.changelog.segment import HEADER_BYTES
from tidelog.checkpoint.manifest import Author, Start, encode_entry
from tidelog.ids import Generation, Slot
from tidelog.storage import object_names
from tidelog.storage.memory import MemoryStore

ALL = {5, 6, 7, 8}
"""The checkpoints of `small`."""


def flipped_by(share: float) -> Callable[[bytes], bytes]:
    """One bit is another, so far into the object."""
    return lambda data: flipped_at(min(int(len(data) * share), len(data) - 1))(data)


DAMAGES = {
    **{f"flipped at {share}": flipped_by(share) for share in (0, 0.3, 0.83, 1)},
    "truncated": truncated,
    "lengthened": lengthened,
    "emptied": emptied,
    "missing": missing,
}


def is_start(name: str) -> bool:
    slot = object_names.slot_of(name)
    return slot is not None and slot not in ALL


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_object_is_named_and_costs_the_checkpoints_that_need_it(kind: str) -> None:
    """Outside of deep runs a damage meets a third of the objects, some of each kind."""
    damage, objects, every = DAMAGES[kind], small(), more_in_depth(3, 1)
    kinds = {name.partition("/")[0] for name in objects}
    third = sorted(objects)[list(DAMAGES).index(kind) % every :: every]
    assert {name.partition("/")[0] for name in third} == kinds
    for name in {*third, *filter(is_start, objects)}:
        needs = needed_by(objects, name)
        report = verified(damaged(objects, name, damage))
        found = verdicts(report)
        if damage is missing and object_names.slot_of(name) in ALL:
            # A checkpoint that retention has dropped looks the same.
            assert report.passed and set(found) == ALL - needs
            continue
        if not needs and not is_start(name):
            assert report.passed, f"nothing needs {name}"
            continue
        assert not report.passed
        assert {problem.where for problem in report.problems} == {name}
        costs = {number for problem in report.problems for number in problem.unusable}
        assert costs <= needs
        assert found == {n: "unusable" if n in costs else "sound" for n in found}
        whole = name.startswith(
            (object_names.TABLES, object_names.MATERIALIZATIONS, object_names.CHECKPOINTS)
        )
        if whole or damage in (missing, emptied):
            assert costs == needs, f"all of {name} is needed"


@pytest.mark.parametrize("damage", [flipped, truncated, lengthened])
def test_damage_in_an_encrypted_store_is_named_and_costs_what_needs_it(
    damage: Callable[[bytes], bytes],
) -> None:
    inner = MemoryStore()
    store = with_objects(encrypted(inner), small())
    for name in (name for name in small() if needed_by(small(), name)):
        sealed = contents(inner)[name]
        asyncio.run(inner.put(name, damage(sealed)))
        report = report_on(store)
        assert {problem.where for problem in report.problems} == {name}
        costs = with_verdict(report, "unusable")
        assert costs and costs <= needed_by(small(), name)
        asyncio.run(inner.put(name, sealed))


@pytest.mark.parametrize("damage", [flipped, truncated, missing])
def test_damage_that_costs_others_alone_is_none_of_a_chosen_checkpoint(
    damage: Callable[[bytes], bytes | None],
) -> None:
    objects = small()
    others = [n for n in objects if needed_by(objects, n) and 8 not in needed_by(objects, n)]
    kinds = {name.partition("/")[0] for name in others}
    assert kinds >= {"checkpoints", "segments", "materializations"}
    for name in others:
        report = verified(damaged(objects, name, damage), "latest")
        assert report.passed and verdicts(report) == {8: "sound"}


@pytest.mark.parametrize("damage", [flipped, truncated, missing])
def test_damaged_files_of_rocksdb_tables_are_named_with_their_partition(
    damage: Callable[[bytes], bytes | None],
) -> None:
    objects = filled()
    for name in (name for name in objects if name.startswith(object_names.TABLES)):
        needs = needed_by(objects, name)
        (problem,) = verified(damaged(objects, name, damage)).problems
        assert problem.where == name and problem.unusable == tuple(sorted(needs))
        assert problem.partitions and f"-{problem.partitions[0]}-" in name


def test_every_bit_of_a_segment_counts_and_costs_what_it_is_used_for() -> None:
    objects = tiny()
    name = max(name for name in objects if name.startswith(object_names.SEGMENTS))
    uses = list(ranges(objects, name))
    for at in range(0, len(objects[name]), more_in_depth(29, 7)):
        report = verified(damaged(objects, name, flipped_at(at, 64)), "latest")
        assert {problem.where for problem in report.problems} == {name}, f"byte {at}"
        used = any(begin <= at < end for begin, end in uses)
        assert verdicts(report) == {8: "unusable" if used else "sound"}, f"byte {at}"
    assert not any(begin < HEADER_BYTES for begin, _ in uses)


def ranges(objects: Objects, segment: str) -> Iterator[tuple[int, int]]:
    """The bytes of a segment that the newest checkpoint uses."""
    for _, state in checkpoint_in(objects, 8).subtasks():
        for part in state.log:
            if part.segment == segment:
                yield part.offset, part.offset + part.length


@pytest.mark.parametrize(
    "prefix",
    [
        object_names.SEGMENTS,
        object_names.TABLES,
        object_names.MATERIALIZATIONS,
        object_names.CHECKPOINTS,
    ],
)
def test_objects_that_are_swapped_are_found(prefix: str) -> None:
    objects = small()
    names = sorted(name for name in objects if name.startswith(prefix))
    needed = [name for name in names if needed_by(objects, name) or is_start(name)]
    for one, other in combinations(needed, 2):
        if objects[one] == objects[other]:
            continue
        report = verified({**objects, one: objects[other], other: objects[one]})
        assert not report.passed
        named = {name for p in report.problems for name in (one, other) if name in p.where}
        assert named == {one, other}, f"{one} and {other}"
        touched = needed_by(objects, one) | needed_by(objects, other)
        assert with_verdict(report, "sound") >= ALL - touched


def test_a_manifest_put_back_under_its_own_number_has_too_few_changes() -> None:
    older = checkpoint_in(small(), 5).operators
    report = verified(with_manifest(small(), 8, lambda newest: replace(newest, operators=older)))
    assert verdicts(report) == {5: "sound", 6: "sound", 7: "sound", 8: "doubtful"}
    assert {problem.check for problem in report.problems} == {"order"}
    assert all("as checkpoint 7 has" in problem.expected for problem in report.problems)


def test_a_range_that_belongs_to_another_partition_is_found() -> None:
    def stolen(checkpoint):  # type: ignore[no-untyped-def]
        states = {(o.id, s.index): s for o, s in checkpoint.subtasks()}
        log = states["count", 1].log
        return with_subtask(
            checkpoint, "count", 0, log=log, seqno=states["count", 1].seqno, materialization=None
        )

    report = verified(with_manifest(tiny(), 1, stolen))
    assert {problem.check for problem in report.problems} == {"owner", "rows"}
    (owner,) = (problem for problem in report.problems if problem.check == "owner")
    assert owner.unusable == (1,) and owner.found == "log of count-1"


def test_rows_outside_of_the_key_groups_of_their_subtask_are_found() -> None:
    def narrowed(checkpoint):  # type: ignore[no-untyped-def]
        first = with_subtask(checkpoint, "count", 0, last_key_group=3)
        return with_subtask(first, "count", 1, first_key_group=4)

    report = verified(with_manifest(tiny(), 8, narrowed))
    (problem,) = report.problems
    assert problem.check == "rows" and problem.doubtful == (8,)
    assert problem.expected == "rows of key groups 0 to 3"


def test_key_groups_that_nobody_owns_are_found() -> None:
    report = verified(
        with_manifest(small(), 8, lambda c: with_subtask(c, "count", 1, first_key_group=9))
    )
    (problem,) = report.problems
    assert problem.check == "key-groups" and problem.unusable == (8,)


def test_a_missing_change_below_a_checkpoint_is_found() -> None:
    def shortened(checkpoint):  # type: ignore[no-untyped-def]
        states = {(o.id, s.index): s for o, s in checkpoint.subtasks()}
        return with_subtask(checkpoint, "count", 0, log=states["count", 0].log[1:])

    (problem,) = verified(with_manifest(tiny(), 2, shortened)).problems
    assert problem.check == "log" and problem.unusable == (2,)


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
    """A new start counts the oldest checkpoint no more; `gc` takes its objects, not its slot."""

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
            begun = Start(Slot(9), author, 0, "", history=((Slot(OLDEST), Slot(NEWEST)),))
            await self.put("checkpoints/00000009.json", encode_entry(begun))
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
    stopped(
        counting(name="total"), store, "dropped", retain=20, allow_non_restored_state=("count",)
    )
    assert_sound(report_on(store))
    run(counting(), store, retain=20, allow_non_restored_state=("total",))
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
