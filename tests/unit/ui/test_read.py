"""The page reads a store at little cost, and what is damaged again and again."""

import asyncio

import pytest

from tests.support.clock import VirtualClock
from tests.support.damage import a_descriptor, checkpoint_in, damaged, flipped, missing
from tests.support.jobs import filled, store_of
from tests.support.watching import Counting
from tidelog.errors import CorruptObjectError, ObjectNotFoundError
from tidelog.ids import Slot
from tidelog.storage.memory import MemoryStore
from tidelog.storage.object_names import checkpoint
from tidelog.ui.read import StoreReader

OBJECTS = filled()
DESCRIPTORS = {
    state.materialization.descriptor
    for slot in (7, 8, 9)
    for _, state in checkpoint_in(OBJECTS, slot).subtasks()
    if state.materialization is not None
}


async def test_what_was_read_once_is_not_read_again() -> None:
    store = Counting(store_of(OBJECTS))
    reader = StoreReader(store, VirtualClock(auto=False))
    first = await reader.read(objects=True)
    # Four slots, their descriptors; lists of the slots and of each kind of object.
    assert store.taken() == {"get": 4 + len(DESCRIPTORS), "list": 4}
    again = await reader.read(objects=False)
    assert store.taken() == {"list": 1}
    assert again.inventory == first.inventory and again.findings == ()


async def test_a_new_slot_costs_one_read_and_one_that_was_dropped_is_gone() -> None:
    objects = dict(OBJECTS)
    newest = objects.pop(checkpoint(Slot(9)))
    store = Counting(store_of(objects))
    reader = StoreReader(store, VirtualClock(auto=False))
    assert list((await reader.read(objects=True)).slots.checkpoints) == [7, 8]
    store.taken()
    await store.inner.put(checkpoint(Slot(9)), newest)
    await store.inner.delete(checkpoint(Slot(7)))
    assert list((await reader.read(objects=False)).slots.checkpoints) == [8, 9]
    assert store.taken() == {"get": 1, "list": 1}


async def test_a_damaged_slot_and_descriptor_are_kept_as_errors_and_tried_again() -> None:
    name, _ = a_descriptor(OBJECTS, 9)
    objects = damaged(damaged(OBJECTS, checkpoint(Slot(8)), flipped), name, flipped)
    store = Counting(store_of(objects))
    reader = StoreReader(store, VirtualClock(auto=False))
    view = await reader.read(objects=True)
    assert isinstance(view.slots.unreadable[Slot(8)], CorruptObjectError)
    assert isinstance(view.inventory.unreadable[name], CorruptObjectError)
    assert {finding.where for finding in view.findings} == {checkpoint(Slot(8)), name}
    store.taken()
    for damaged_name in (checkpoint(Slot(8)), name):
        await store.inner.put(damaged_name, OBJECTS[damaged_name])
    mended = await reader.read(objects=True)
    assert store.taken() == {"get": 2, "list": 4}
    assert not mended.slots.unreadable and not mended.inventory.unreadable
    assert mended.findings == ()


async def test_a_missing_object_is_found_and_forgotten_with_the_checkpoint_that_needs_it() -> None:
    name, _ = a_descriptor(OBJECTS, 9)
    store = store_of(damaged(OBJECTS, name, missing))
    reader = StoreReader(store, VirtualClock(auto=False))
    [finding] = (await reader.read(objects=True)).findings
    assert finding.where == name
    for slot in finding.unusable:
        await store.delete(checkpoint(Slot(slot)))
    assert (await reader.read(objects=False)).findings == ()


def test_a_store_without_slots_is_an_error() -> None:
    reader = StoreReader(MemoryStore(), VirtualClock(auto=False))
    with pytest.raises(ObjectNotFoundError, match="check the URL"):
        asyncio.run(reader.read(objects=True))
