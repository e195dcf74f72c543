"""Fencing by create-once slots: whoever races, sleeps or hears no answer, one writer goes on."""

import asyncio

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.property.profiles import looking
from tests.support.clock import in_virtual_time
from tests.support.faults import Failure, Fault, FaultKind, SteerableStore
from tests.unit.storage.encryption.test_encrypted_store import EFFECTS, encrypted, keys
from tests.unit.storage.encryption.test_sealed import FIRST, SECOND
from tidelog.checkpoint.manifest import Author, Checkpoint, Start, encode_entry
from tidelog.checkpoint.retention import slot_ranges
from tidelog.checkpoint.slots import SlotLog, TakeOver
from tidelog.errors import CorruptObjectError, FencedError, ObjectExistsError, StorageError
from tidelog.ids import CheckpointId, Slot
from tidelog.storage import object_names
from tidelog.storage.encryption.ring import rotate
from tidelog.storage.memory import MemoryStore


class Writer:
    """One incarnation: takes over, then appends checkpoint after checkpoint."""

    def __init__(self, store: SteerableStore, seed: int) -> None:
        self.log = SlotLog(store, in_virtual_time(seed))
        self.taken: TakeOver | None = None
        self.next_slot = Slot(0)
        self.written: list[Slot] = []
        self.dropped: set[Slot] = set()
        """What retention deletes with the next checkpoint."""

    async def start(self) -> TakeOver:
        self.taken = await self.log.take_over("job")
        self.next_slot = Slot(self.taken.generation + 1)
        return self.taken

    def checkpoint(self, number: int) -> Checkpoint:
        assert self.taken is not None
        author = Author(self.taken.generation, self.taken.attempt)
        history = slot_ranges({*self.taken.slots, *self.written} - self.dropped)
        return Checkpoint(
            self.next_slot, author, CheckpointId(number), 0, "job", (), history=history
        )

    async def append(self, number: int) -> None:
        while await self.log.append(self.checkpoint(number)) is not None:
            self.next_slot = Slot(self.next_slot + 1)
        self.written.append(self.next_slot)
        self.next_slot = Slot(self.next_slot + 1)


@pytest.fixture
def store() -> SteerableStore:
    return SteerableStore(MemoryStore("memory://slots"))


async def held(newcomer: Writer, store: SteerableStore) -> "asyncio.Task[TakeOver]":
    """A start that has chosen its slot, and waits for the store to let it write."""
    store.hold(object_names.CHECKPOINTS)
    starting = asyncio.ensure_future(newcomer.start())
    while not store.waiting:
        await asyncio.sleep(0)
    return starting


async def test_the_first_generation_is_slot_zero_and_each_start_is_greater(
    store: SteerableStore,
) -> None:
    first, second = Writer(store, 1), Writer(store, 2)
    assert (await first.start()).generation == 0
    await first.append(1)
    taken = await second.start()
    assert (taken.generation, taken.slots, taken.left_over) == (2, (1,), (0,))
    assert taken.attempt != (first.taken.attempt if first.taken else None)


async def test_a_zombie_that_was_faster_is_seen_by_the_newcomer(store: SteerableStore) -> None:
    old, slow = Writer(store, 1), SteerableStore(store.inner)
    await old.start()
    starting = await held(Writer(slow, 2), slow)
    await old.append(1)
    slow.release()
    taken = await starting
    assert taken.slots == (1,), "the zombie's checkpoint is where the newcomer resumes"
    assert taken.generation == 2


async def test_a_zombie_that_wakes_after_retention_still_collides(store: SteerableStore) -> None:
    old, new = Writer(store, 1), Writer(store, 2)
    await old.start()
    for number in (1, 2):
        await old.append(number)
    await new.start()
    for number in (3, 4, 5):
        await new.append(number)
    for slot in (*old.written, *new.written[:-1]):
        await new.log.remove(slot)
    with pytest.raises(FencedError):
        await old.append(3)


async def test_a_start_whose_answer_was_lost_is_our_own(store: SteerableStore) -> None:
    store.fail(Fault(FaultKind.DUPLICATE, "create"))  # as a client repeats what was not answered
    writer = Writer(store, 1)
    taken = await writer.start()
    assert taken.slots == ()
    entry = await writer.log.read(Slot(taken.generation))
    assert isinstance(entry, Start) and entry.author.attempt == taken.attempt
    await writer.append(1)
    assert writer.written == [1]


async def test_a_checkpoint_given_up_because_its_answer_was_lost_keeps_its_slot(
    store: SteerableStore,
) -> None:
    writer = Writer(store, 1)
    await writer.start()
    store.fail(Failure("create", object_names.CHECKPOINTS, after=True))
    with pytest.raises(StorageError):
        await writer.append(1)
    await writer.append(2)
    found = [await writer.log.read(slot) for slot in await writer.log.slots()]
    assert [e.checkpoint_id for e in found if isinstance(e, Checkpoint)] == [1, 2]


async def test_a_damaged_slot_in_the_way_is_an_error_never_a_free_slot(
    store: SteerableStore,
) -> None:
    writer = Writer(store, 1)
    await writer.start()
    await store.put(object_names.checkpoint(Slot(1)), encode_entry(writer.checkpoint(1))[:-9])
    with pytest.raises(CorruptObjectError):
        await writer.append(1)


async def test_a_slot_with_the_manifest_of_another_is_an_error(store: SteerableStore) -> None:
    writer = Writer(store, 1)
    await writer.start()
    await writer.append(1)
    await writer.append(2)
    older = await store.get(object_names.checkpoint(writer.written[0]))
    await store.put(object_names.checkpoint(writer.written[1]), older)
    with pytest.raises(CorruptObjectError, match="of checkpoint 2; found that of checkpoint 1"):
        await writer.log.read(writer.written[1])


async def test_names_that_are_no_slots_are_ignored(store: SteerableStore) -> None:
    await store.put(f"{object_names.CHECKPOINTS}notes.txt", b"mine")
    assert (await Writer(store, 1).start()).slots == ()


@looking(60)
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["start", "append"])), max_size=30))
def test_slots_always_tell_one_history(moves: list[tuple[int, str]]) -> None:
    """Any number of writers in any order: a checkpoint is never written behind a newer start."""

    async def steps() -> None:
        store = SteerableStore(MemoryStore())
        writers = [Writer(store, n) for n in range(4)]
        for number, (who, what) in enumerate(moves):
            writer = writers[who]
            if what == "start":
                await writer.start()
            elif writer.taken is not None:
                try:
                    await writer.append(number)
                except FencedError:
                    writer.taken = None
        log = SlotLog(store, in_virtual_time(9))
        slots = await log.slots()
        assert slots == list(range(len(slots)))
        generation = -1
        for slot in slots:
            entry = await log.read(slot)
            if isinstance(entry, Start):
                assert entry.author.generation == slot
                generation = slot
            else:
                assert entry.author.generation == generation

    asyncio.run(steps())


async def test_a_zombie_whose_unanswered_checkpoint_was_dropped_is_fenced_all_the_same(
    store: SteerableStore,
) -> None:
    old, new = Writer(store, 1), Writer(store, 2)
    await old.start()
    store.fail(Failure("create", object_names.CHECKPOINTS, after=True))
    with pytest.raises(StorageError):
        await old.append(1)
    await new.start()
    await new.append(2)
    # Retention: the slot that the zombie had taken without knowing is free again.
    new.dropped = {Slot(1)}
    await new.append(3)
    await new.log.remove(Slot(1))
    with pytest.raises(FencedError, match="generation 0 was fenced"):
        await old.append(2)
    assert old.written == []
    assert await new.log.slots() == [0, 2, 3, 4], "and it leaves no slot behind"


async def test_a_newcomer_does_not_take_a_slot_below_those_of_the_job_that_runs(
    store: SteerableStore,
) -> None:
    old, slow = Writer(store, 1), SteerableStore(store.inner)
    await old.start()
    starting = await held(Writer(slow, 2), slow)
    # While the newcomer wants slot 1, the running job takes it, goes on, and drops it.
    await old.append(1)
    old.dropped = {Slot(1)}
    await old.append(2)
    await old.log.remove(Slot(1))
    slow.release()
    taken = await starting
    assert taken.generation == 3
    assert taken.slots == (2,), "the checkpoint is seen"
    assert set(taken.left_over) == {0, 1}, "the old job's start, and the newcomer's first one"
    with pytest.raises(FencedError):
        await old.append(3)


class Dropping(SteerableStore):
    """A slot that is found taken is dropped before anybody can read it."""

    async def create(self, name: str, data: bytes) -> None:
        try:
            await super().create(name, data)
        except ObjectExistsError:
            if name == object_names.checkpoint(Slot(1)):
                await self.inner.delete(name)
            raise


async def test_a_slot_that_is_dropped_before_it_is_read_back_was_another_s(
    store: SteerableStore,
) -> None:
    old, dropping = Writer(store, 1), Dropping(store.inner)
    await old.start()
    starting = await held(Writer(dropping, 2), dropping)
    for number in (1, 2):
        await old.append(number)
    dropping.release()
    assert (await starting).generation == 3

    late = Writer(dropping, 1)
    late.taken, late.next_slot = old.taken, Slot(1)
    await store.inner.put(object_names.checkpoint(Slot(1)), encode_entry(old.checkpoint(1)))
    with pytest.raises(FencedError):
        await late.append(9)


async def test_a_writer_with_the_key_before_a_rotation_is_fenced_by_a_start_with_the_new_one() -> (
    None
):
    inner = MemoryStore()
    older = Writer(SteerableStore(encrypted(inner, FIRST)), 1)
    await older.start()
    await older.append(1)
    await rotate(inner, keys(FIRST), keys(SECOND), EFFECTS)
    await older.append(2)
    await Writer(SteerableStore(encrypted(inner, SECOND)), 2).start()
    late, known = older.checkpoint(3), older.written[-1]
    for asked in (
        older.log.append(late),
        older.log.prove_not_fenced(known, late.author),
        older.log.prove_newest(known, late.author.generation),
    ):
        with pytest.raises(FencedError):
            await asked


async def test_a_name_that_retention_freed_does_not_let_a_suspended_writer_go_on(
    store: SteerableStore,
) -> None:
    """A request on its way when its writer was suspended arrives after two successors."""
    old, new, newest = Writer(store, 1), Writer(store, 2), Writer(store, 3)
    await old.start()
    await new.start()
    await new.append(1)
    taken = await newest.start()
    await newest.log.remove_left_over(taken.left_over)
    await newest.append(2)
    assert await newest.log.slots() == [2, 3, 4], "slot 1, which the oldest wants, is free"
    with pytest.raises(FencedError, match="generation 0 was fenced"):
        await old.append(9)
    assert await newest.log.slots() == [2, 3, 4], "and it leaves no slot behind"


async def test_a_checkpoint_that_a_successor_has_seen_is_never_removed(
    store: SteerableStore,
) -> None:
    """The successor starts between the creation of the slot and the look for newer ones."""
    old, new = Writer(store, 1), Writer(store, 2)
    await old.start()

    class Overtaken(SteerableStore):
        async def create(self, name: str, data: bytes) -> None:
            await self.inner.create(name, data)
            assert (await new.start()).slots == (1,)

    late = SlotLog(Overtaken(store.inner), old.log._effects)
    with pytest.raises(FencedError):
        await late.append(old.checkpoint(1))
    entry = await new.log.read(Slot(1))
    assert isinstance(entry, Checkpoint) and entry.checkpoint_id == 1


async def test_the_slots_and_requests_of_a_start_do_not_grow_with_the_starts_before_it(
    store: SteerableStore,
) -> None:
    requests = []
    for number in range(1, 40):
        writer = Writer(store, number)
        before = len(store.calls)
        taken = await writer.start()
        await writer.log.remove_left_over(taken.left_over)
        requests.append(len(store.calls) - before)
        if number % 3 == 0:
            writer.dropped = set(taken.slots)
            await writer.append(number)
            for slot in taken.slots:
                await writer.log.remove(slot)
    assert max(requests[3:]) <= max(requests[:6])
    assert len(await writer.log.slots()) <= 3
