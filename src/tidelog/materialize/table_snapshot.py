"""Snapshots of a table in the object store: incremental by file.

Invariants:
- a shared file is uploaded once per table, under a name that no other upload ever has: the
  collector can delete a name without asking whether someone is about to write it again; only one
  that the store has lost, and that the table still uses, is uploaded again under its name;
- a descriptor is written after all files it names; it is small, so private files live in it;
- nothing refers to a snapshot before its descriptor is durable;
- no file is uploaded before all of it is here.
"""

import asyncio
import shutil
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from tidelog.checkpoint.descriptor import Descriptor, TableObject, encode_descriptor
from tidelog.checkpoint.manifest import MaterializationRef
from tidelog.concurrency import together
from tidelog.effects import Effects
from tidelog.ids import Generation, MaterializationId, SeqNo
from tidelog.materialize.pacing import TRANSFERS, Remaining, UploadSlots
from tidelog.storage import object_names
from tidelog.storage.document import checksum, content_hash
from tidelog.storage.errors import from_os_error
from tidelog.storage.ledger import Ledger
from tidelog.storage.port import ObjectStore
from tidelog.table.port import Freeze, Table, TableFile

if TYPE_CHECKING:
    from tidelog.checkpoint.local_first import LocalFirstStore
    from tidelog.state.recovery.hydration import TableHydration

_RECENT: Final = 256


class Captured(msgspec.Struct, frozen=True):
    """A frozen table on local disk, waiting for its upload."""

    id: MaterializationId
    upto: SeqNo
    directory: Path
    lay_out: Freeze
    """Writes the files of the frozen table, when the upload begins."""


class SnapshotMetrics(msgspec.Struct):
    """Counters since the start; bytes and seconds."""

    started: int = 0
    completed: int = 0
    failed: int = 0
    bytes_uploaded: int = 0
    seconds: float = 0.0
    recent_seconds: deque[float] = msgspec.field(default_factory=lambda: deque(maxlen=_RECENT))
    last_failure: str | None = None

    def failure(self, error: Exception) -> None:
        self.failed += 1
        self.last_failure = str(error)


@dataclass(slots=True)
class TableSnapshots:
    """Takes and uploads the snapshots of one subtask's table."""

    store: ObjectStore
    effects: Effects
    ledger: Ledger
    generation: Generation
    operator: str
    subtask: int
    table: Table
    table_kind: str
    directory: Path
    upload_slots: UploadSlots
    """Shared with the tables of all subtasks."""
    stored_files: dict[str, TableObject] = field(default_factory=dict)
    """Shared files of the table that are stored already, by local name."""
    lost: set[str] = field(default_factory=set)
    """Objects that the store has lost: the next snapshot uploads them again."""
    copies: "LocalFirstStore | None" = None
    """The store, when it keeps copies on local disk."""
    hydration: "TableHydration | None" = None
    """What of the table is missing; None: nothing."""
    metrics: SnapshotMetrics = field(default_factory=SnapshotMetrics)
    _last_id: int = 0
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """One upload at a time: each ends with what it knows to be stored."""

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Within, an error of writing the table, or of uploading it, is a failed snapshot."""
        try:
            yield
        # A task that ends cancels its materialization: that is no failure.
        except Exception as error:
            self.metrics.failure(error)
            raise

    async def prepare(self) -> None:
        """Do the slow part ahead, while the task goes on."""
        await self.effects.offload.run_to_end(self.table.prepare_snapshot)

    def capture(self, upto: SeqNo) -> Captured:
        """Freeze the table, which contains all changes below `upto`, and maybe later ones."""
        self._last_id += 1
        self.metrics.started += 1
        directory = self.directory / f"snapshot-{self._last_id}"
        lay_out = self.table.freeze(directory)
        return Captured(MaterializationId(self._last_id), upto, directory, lay_out)

    async def upload(
        self, captured: Captured, finish_by: float | None = None
    ) -> MaterializationRef:
        """Upload what is new and the descriptor; raises the store's errors.

        With a time to finish by the files keep out of the way of checkpoints until then; without
        it they are part of one. The caller ends the ledger's protection of the descriptor once the
        reference is in use.
        """
        try:
            with self.counting():
                async with self._turn:
                    return await self._upload(captured, finish_by)
        finally:
            await self.discard(captured)

    async def discard(self, captured: Captured) -> None:
        """Remove the files on local disk."""
        await self.effects.offload.run(shutil.rmtree, captured.directory, True)

    async def _upload(self, captured: Captured, finish_by: float | None) -> MaterializationRef:
        if self.hydration is not None:
            # The frozen files are those of the table, and are filled with them.
            await self.hydration.whole()
        started = self.effects.clock.monotonic()
        try:
            # The table is closed soon after a cancellation, so not while it is worked on.
            files = await self.effects.offload.run_to_end(captured.lay_out)
            shared = await self._upload_files(captured.id, files, finish_by)
            ref = await self._write_descriptor(captured, files, shared)
        except OSError as cause:
            raise from_os_error(cause, f"table snapshot {captured.directory}") from cause
        live = {file.name for file in files}
        self.stored_files = {name: file for name, file in self.stored_files.items() if name in live}
        self.metrics.completed += 1
        seconds = self.effects.clock.monotonic() - started
        self.metrics.seconds += seconds
        self.metrics.recent_seconds.append(seconds)
        return ref

    def objects(self) -> set[str]:
        """Stored files that the next snapshot will refer to again."""
        return {file.object for file in self.stored_files.values()}

    async def _upload_files(
        self, snapshot: MaterializationId, files: Iterable[TableFile], finish_by: float | None
    ) -> list[TableObject]:
        """All shared files of the snapshot, those that are not stored yet uploaded."""
        shared = [file for file in files if file.shared]
        new = [file for file in shared if self._stored_as(file) is None]
        remaining = None
        if finish_by is not None:
            remaining = Remaining(finish_by, len(new), sum(file.size for file in new))
        await together((self._upload_file(snapshot, file, remaining) for file in new), TRANSFERS)
        return [self.stored_files[file.name] for file in shared]

    def _stored_as(self, file: TableFile) -> TableObject | None:
        """The object that holds a file; None for one that is not stored, or that is lost."""
        table_object = self.stored_files.get(file.name)
        return None if table_object is None or table_object.object in self.lost else table_object

    async def _upload_file(
        self, snapshot: MaterializationId, file: TableFile, remaining: Remaining | None
    ) -> None:
        async with self.upload_slots.slot(file.size, remaining):
            data = await self.effects.offload.run(file.path.read_bytes)
            digest, crc = await self.effects.offload.run(
                lambda: (content_hash(data), checksum(data))
            )
            name = self._object_name(file, digest, snapshot)
            self.ledger.begin(name)
            try:
                await self.store.put(name, data)
                self.metrics.bytes_uploaded += len(data)
                if self.copies is not None:
                    await self.copies.keep_file(name, file.path)
                self.stored_files[file.name] = TableObject(file.name, name, len(data), crc)
                self.lost.discard(name)
            finally:
                # From here on `stored_files` protects it, or nobody will ever refer to it.
                self.ledger.done([name])

    def _object_name(self, file: TableFile, digest: str, snapshot: MaterializationId) -> str:
        """A name of its own for a new file; a lost one keeps its name, for older checkpoints."""
        table_object = self.stored_files.get(file.name)
        if table_object is not None and object_names.content_hash_of(table_object.object) == digest:
            return table_object.object
        label = f"{digest}-{self.operator}-{self.subtask}-{snapshot}"
        return object_names.table_file(self.generation, label)

    async def _write_descriptor(
        self, captured: Captured, files: Iterable[TableFile], shared: Iterable[TableObject]
    ) -> MaterializationRef:
        private = {f.name: f.path.read_bytes() for f in files if not f.shared}
        descriptor = Descriptor(
            id=captured.id,
            operator=self.operator,
            subtask=self.subtask,
            generation=self.generation,
            table=self.table_kind,
            upto=captured.upto,
            shared=tuple(shared),
            private=private,
        )
        data = encode_descriptor(descriptor)
        name = object_names.materialization(
            self.generation, self.operator, self.subtask, captured.id
        )
        self.ledger.begin(name)
        try:
            await self.store.put(name, data)
        except BaseException:
            self.ledger.done([name])
            raise
        self.ledger.describe(name, descriptor.shared_bytes)
        self.metrics.bytes_uploaded += len(data)
        return MaterializationRef(
            captured.id, name, len(data), captured.upto, descriptor.table_bytes
        )
