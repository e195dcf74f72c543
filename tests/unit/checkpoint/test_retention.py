"""What may go: the checkpoints retention does not keep, the objects nobody refers to."""

import asyncio

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.property.profiles import looking
from tests.support.faults import Failure, SteerableStore
from tests.support.pipelines import Outside, config, effects, run, word_count, words
from tidelog import Checkpoint, CorruptObjectError
from tidelog.changelog.segment import LogRange
from tidelog.checkpoint.garbage_collector import Collector
from tidelog.checkpoint.manifest import Author, OperatorState, SubtaskState, encode_entry
from tidelog.checkpoint.retention import subsumed
from tidelog.checkpoint.slots import SlotLog
from tidelog.checkpoint.startup import read_history
from tidelog.ids import CheckpointId, Generation, KeyGroup, SeqNo, Slot
from tidelog.storage import object_names
from tidelog.storage.ledger import Ledger
from tidelog.storage.memory import MemoryStore


def segment(number: int, generation: int = 0) -> str:
    return object_names.segment(Generation(generation), "process", number)


def checkpoint(slot: int, *segments: str) -> Checkpoint:
    ranges = tuple(
        LogRange(name, 40, 10, SeqNo(at), SeqNo(at + 1), KeyGroup(0), KeyGroup(3))
        for at, name in enumerate(segments)
    )
    subtask = SubtaskState(0, 0, 3, SeqNo(len(segments)), "memory", log=ranges)
    operators = (OperatorState("operator", 4, (), (subtask,)),)
    author = Author(Generation(0), "attempt")
    return Checkpoint(Slot(slot), author, CheckpointId(slot), 0, "job", operators)


@given(st.sets(st.integers(0, 50)), st.integers(1, 5), st.sets(st.integers(0, 50)))
def test_the_pinned_always_stay_and_besides_them_as_many_of_the_newest_as_are_wanted(
    slots: set[int], keep: int, pinned: set[int]
) -> None:
    gone = subsumed(map(Slot, slots), keep, {Slot(p) for p in pinned})
    assert set(gone).isdisjoint(pinned)
    assert set(gone).isdisjoint(sorted(slots)[-keep:])
    assert len(slots - pinned - set(gone)) == min(keep, len(slots - pinned))


class Rig:
    def __init__(self, keep: int = 1) -> None:
        self.memory = MemoryStore("memory://collector")
        self.store = SteerableStore(self.memory)
        self.ledger = Ledger()
        self.live: set[str] = set()
        slots = SlotLog(self.store, effects())
        self.collector = Collector(self.store, slots, self.ledger, keep)

    def write(self, *names: str) -> None:
        for name in names:
            asyncio.run(self.memory.put(name, b"data"))
            self.ledger.begin(name)
            self.ledger.done([name])

    def complete(self, entry: Checkpoint) -> None:
        asyncio.run(self.memory.put(object_names.checkpoint(entry.slot), encode_entry(entry)))
        self.collector.completed(entry)

    def collect(self) -> set[str]:
        async def live() -> set[str]:
            return self.live

        asyncio.run(self.collector.collect(live))
        return set(self.memory._objects)


def test_a_subsumed_checkpoint_goes_and_takes_what_only_it_named() -> None:
    rig = Rig()
    rig.write(segment(1), segment(2), segment(3))
    rig.complete(checkpoint(1, segment(1), segment(2)))
    rig.complete(checkpoint(2, segment(2)))
    rig.live = {segment(3)}
    assert rig.collect() == {object_names.checkpoint(Slot(2)), segment(2), segment(3)}
    assert [c for c in rig.store.calls if c[0] == "delete"] == [
        ("delete", object_names.checkpoint(Slot(1))),
        ("delete", segment(1)),
    ], "the manifest goes before what it names"


def test_while_a_manifest_cannot_be_deleted_its_objects_stay() -> None:
    rig = Rig()
    rig.write(segment(1))
    rig.complete(checkpoint(1, segment(1)))
    rig.complete(checkpoint(2))
    rig.store.fail(Failure("delete", object_names.CHECKPOINTS))
    assert segment(1) in rig.collect()
    assert rig.collect() == {object_names.checkpoint(Slot(2))}


@pytest.mark.parametrize("after", [False, True])
def test_a_failed_deletion_is_tried_again(after: bool) -> None:
    rig = Rig()
    rig.write(segment(1))
    rig.store.fail(Failure("delete", object_names.SEGMENTS, after=after))
    rig.collect()
    assert segment(1) in rig.ledger.names
    assert rig.collect() == set()
    assert rig.ledger.names == set()


def test_an_upload_in_progress_is_never_collected() -> None:
    rig = Rig()
    rig.write(segment(1))
    rig.ledger.begin(segment(1))
    assert rig.collect() == {segment(1)}
    rig.ledger.done([segment(1)])
    assert rig.collect() == set()


def test_a_descriptor_keeps_the_files_it_names() -> None:
    rig = Rig()
    descriptor = "materializations/00000000/operator-0-1.json"
    rig.write(descriptor, "tables/00000000/a.sst", "tables/00000000/b.sst")
    rig.ledger.describe(descriptor, {"tables/00000000/a.sst": 1})
    rig.live = {descriptor}
    assert rig.collect() == {descriptor, "tables/00000000/a.sst"}


@looking(50)
@given(st.data())
def test_whatever_is_collected_no_retained_checkpoint_misses_an_object(data: st.DataObject) -> None:
    rig = Rig(keep=data.draw(st.integers(1, 3)))
    names = [segment(n) for n in range(6)]
    rig.write(*names)
    kept: dict[int, set[str]] = {}
    slot = 0
    for _ in range(data.draw(st.integers(1, 12))):
        if data.draw(st.booleans()):
            slot += 1
            # A checkpoint only names what is live when it is taken.
            stored = [n for n in rig.memory._objects if n.startswith(object_names.SEGMENTS)]
            named = set(data.draw(st.lists(st.sampled_from([*stored, ""])))) - {""}
            rig.complete(checkpoint(slot, *sorted(named)))
            kept[slot] = named
        else:
            stored = [n for n in rig.memory._objects if n.startswith(object_names.SEGMENTS)]
            rig.live = set(data.draw(st.lists(st.sampled_from([*stored, ""])))) - {""}
            found = rig.collect()
            for number in sorted(kept)[-rig.collector.keep :]:
                assert kept[number] <= found
            assert {n for n in found if n.startswith(object_names.SEGMENTS)} == set().union(
                rig.live, *(kept[n] for n in sorted(kept)[-rig.collector.keep :])
            )


def inherited(damage: str | None) -> tuple[set[str], list[int], list[int]]:
    """(objects a newcomer may delete, readable checkpoints, damaged slots) of a store where one
    object was damaged."""
    memory = MemoryStore("memory://history")
    run(word_count(words(2, 40), Outside()), memory, config(retain=3))
    if damage is not None:
        name = [n for n in memory._objects if n.startswith(damage)][-2 if "check" in damage else 0]
        memory._objects[name] = memory._objects[name][:-30]
    slots = SlotLog(memory, effects())

    async def read() -> tuple[set[str], list[int], list[int]]:
        taken = await slots.take_over("job")
        ledger = Ledger()
        history = await read_history(memory, slots, taken, ledger)
        own = {n for n in ledger.names if object_names.generation_of(n) is not None}
        return own, [c.slot for c in history.checkpoints], list(history.damaged)

    return asyncio.run(read())


def test_a_newcomer_inherits_all_objects_of_older_generations() -> None:
    names, checkpoints, damaged = inherited(None)
    assert {n.split("/")[0] for n in names} >= {"segments", "materializations"}
    assert len(checkpoints) == 3 and damaged == []


@pytest.mark.parametrize(
    ("damage", "readable"), [(object_names.CHECKPOINTS, 2), (object_names.MATERIALIZATIONS, 3)]
)
def test_nothing_is_inherited_while_it_may_be_named_by_what_cannot_be_read(
    damage: str, readable: int
) -> None:
    names, checkpoints, damaged = inherited(damage)
    assert (len(checkpoints), len(damaged)) == (readable, 3 - readable)
    assert not any(n.startswith(object_names.SEGMENTS) for n in names)


def test_a_damaged_newest_slot_is_never_skipped_silently() -> None:
    memory = MemoryStore("memory://newest")
    run(word_count(words(), Outside()), memory)
    newest = max(n for n in memory._objects if n.startswith(object_names.CHECKPOINTS))
    memory._objects[newest] = b"rubbish"
    slots = SlotLog(memory, effects())

    async def resume() -> None:
        for _ in range(2):  # the second newcomer sees the start slot of the first behind the damage
            taken = await slots.take_over("job")
            history = await read_history(memory, slots, taken, Ledger())
            with pytest.raises(CorruptObjectError):
                history.resume_from(None)

    asyncio.run(resume())
