"""Snapshots upload each file once, name nothing before it is stored, and leave nothing behind."""

import asyncio
from pathlib import Path

import pytest

from tests.support.clock import VirtualClock, in_virtual_time
from tests.support.faults import Failure, SteerableStore
from tidelog import StorageError
from tidelog.changelog.cadence import Cadence
from tidelog.checkpoint.descriptor import Descriptor, decode_descriptor
from tidelog.checkpoint.manifest import MaterializationRef
from tidelog.ids import Generation, SeqNo
from tidelog.materialize.pacing import UploadSlots
from tidelog.materialize.table_snapshot import TableSnapshots
from tidelog.storage import object_names
from tidelog.storage.ledger import Ledger
from tidelog.storage.memory import MemoryStore
from tidelog.table.memory import MemoryTable


class Rig:
    def __init__(self, directory: Path) -> None:
        self.memory = MemoryStore("memory://snapshots")
        self.store = SteerableStore(self.memory)
        self.ledger = Ledger()
        self.table = MemoryTable()
        self.clock = VirtualClock()
        effects = in_virtual_time(1, self.clock)
        self.directory = directory
        self.snapshots = TableSnapshots(
            self.store, effects, self.ledger, Generation(3), "operator", 1,
            self.table, "memory", directory, UploadSlots(self.clock),
        )  # fmt: skip

    def fill(self, start: int, end: int) -> None:
        keys = [n.to_bytes(4, "big") for n in range(start, end)]
        self.table.write(keys, [bytes(20)] * len(keys))

    async def take(self, upto: int, finish_by: float | None = None) -> MaterializationRef:
        return await self.snapshots.upload(self.snapshots.capture(SeqNo(upto)), finish_by)

    def descriptor(self, ref: MaterializationRef) -> Descriptor:
        return decode_descriptor(self.memory._objects[ref.descriptor], ref.descriptor)

    @property
    def puts(self) -> list[str]:
        return [name for operation, name in self.store.calls if operation == "put"]


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path / "snapshots")


def test_the_descriptor_is_written_after_all_files_it_names(rig: Rig) -> None:
    rig.fill(0, 5000)
    ref = asyncio.run(rig.take(5000))
    descriptor = rig.descriptor(ref)
    assert len(descriptor.shared) > 1
    assert rig.puts[-1] == ref.descriptor
    assert {f.object for f in descriptor.shared} == set(rig.puts[:-1])
    assert (descriptor.upto, descriptor.operator, descriptor.subtask) == (5000, "operator", 1)
    assert ref.size == len(rig.memory._objects[ref.descriptor])


def test_a_file_stored_already_is_not_uploaded_again(rig: Rig) -> None:
    rig.fill(0, 5000)
    first = rig.descriptor(asyncio.run(rig.take(5000)))
    before = len(rig.puts)
    rig.table.write([bytes(4)], [b"changed"])
    second = rig.descriptor(asyncio.run(rig.take(5001)))
    assert len(rig.puts) - before == 2, "the changed file and the descriptor"
    assert len({f.object for f in first.shared} & {f.object for f in second.shared}) == (
        len(first.shared) - 1
    )


def test_content_that_comes_back_gets_a_name_of_its_own(rig: Rig) -> None:
    """The collector may be deleting the old name at this very moment."""
    rig.fill(0, 5000)
    names = []
    for value in (b"one", b"two", b"one"):
        rig.table.write([bytes(4)], [value])
        names.append({f.object for f in rig.descriptor(asyncio.run(rig.take(10))).shared})
    first, between, again = names
    assert first - between, "a file that the second snapshot does without"
    assert (first - between).isdisjoint(again)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("prefix", [object_names.TABLES, object_names.MATERIALIZATIONS])
def test_a_failed_upload_protects_nothing_and_is_repeated_from_where_it_was(
    rig: Rig, prefix: str, after: bool
) -> None:
    rig.fill(0, 5000)
    nth = 2 if prefix == object_names.TABLES else 1
    rig.store.fail(Failure("put", prefix, after=after, nth=nth))
    with pytest.raises(StorageError):
        asyncio.run(rig.take(5000))
    assert rig.ledger.busy == frozenset()
    assert set(rig.memory._objects) <= rig.ledger.names
    assert list(rig.directory.iterdir()) == []
    uploaded = len(rig.puts)
    ref = asyncio.run(rig.take(5000))
    assert {f.object for f in rig.descriptor(ref).shared} <= set(rig.memory._objects)
    assert len(rig.puts) - uploaded < len(rig.descriptor(ref).shared) + 1
    assert (rig.snapshots.metrics.failed, rig.snapshots.metrics.completed) == (1, 1)


async def test_table_files_wait_while_a_checkpoint_moves_its_bytes(rig: Rig) -> None:
    rig.fill(0, 5000)
    cadence = Cadence(rig.clock)
    rig.snapshots.upload_slots = UploadSlots(rig.clock, cadence)
    cadence.expect(100.0)
    with cadence.moving():
        taking = asyncio.ensure_future(rig.take(5000, finish_by=60.0))
        await rig.clock.advance(1.0)
        assert rig.puts == []
    await taking


async def test_a_cancelled_upload_leaves_no_files_and_no_protection(rig: Rig) -> None:
    rig.fill(0, 5000)
    rig.store.hold(object_names.TABLES)
    taking = asyncio.ensure_future(rig.take(5000))
    await rig.clock.advance(1.0)
    taking.cancel()
    await asyncio.gather(taking, return_exceptions=True)
    assert rig.ledger.busy == frozenset()
    assert list(rig.directory.iterdir()) == []
