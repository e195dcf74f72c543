"""Snapshots of a table in the object store: incremental by file.

Invariants:
- a shared file is uploaded once per table, under a name that no other upload ever has: the
  collector can delete a name without asking whether someone is about to write it again;
- a descriptor is written after all files it names; it is small, so private files live in it;
- nothing refers to a snapshot before its descriptor is durable.
"""

import asyncio
import shutil
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tidelog.checkpoint.local_first import LocalFirstStore
from tidelog.checkpoint.manifest import (
    Descriptor,
    MaterializationRef,
    TableObject,
    encode_descriptor,
)
from tidelog.checkpoint.table_file import content_hash
from tidelog.dstl.cadence import Cadence
from tidelog.effects import Effects
from tidelog.ids import Generation, MaterializationId, SeqNo
from tidelog.materialize.pacing import Pace
from tidelog.storage import paths
from tidelog.storage.document import checksum
from tidelog.storage.ledger import Ledger
from tidelog.storage.port import ObjectStore
from tidelog.storage.raising import from_os_error
from tidelog.table.port import Table, TableFile

PATIENCE_S = 2.0
"""How long a file waits at most for a gap between checkpoints."""
_RECENT: Final = 256


@dataclass(frozen=True, slots=True)
class Captured:
    """A frozen table on local disk, waiting for its upload."""

    id: MaterializationId
    upto: SeqNo
    directory: Path
    files: tuple[TableFile, ...]


@dataclass(slots=True)
class SnapshotMetrics:
    """Counters since the start; bytes and seconds."""

    started: int = 0
    completed: int = 0
    failed: int = 0
    bytes_uploaded: int = 0
    seconds: float = 0.0
    recent_seconds: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))


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
    known: dict[str, TableObject] = field(default_factory=dict)
    """Shared files of the table that are stored already, by local name."""
    metrics: SnapshotMetrics = field(default_factory=SnapshotMetrics)
    released: bool = False
    """The table is closed for good; the figures stay."""
    _last_id: int = 0
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """One upload at a time: each ends with what it knows to be stored."""
    _bytes_per_s: float = 50e6
    """Estimate of the store's speed, half old and half the last file."""

    async def prepare(self) -> None:
        """Do the slow part ahead, while the task goes on."""
        await self.effects.offload.run(self.table.prepare_snapshot)

    def capture(self, upto: SeqNo) -> Captured:
        """Freeze the table, which contains exactly the changes below `upto`."""
        self._last_id += 1
        self.metrics.started += 1
        directory = self.directory / f"snapshot-{self._last_id}"
        files = self.table.snapshot(directory)
        return Captured(MaterializationId(self._last_id), upto, directory, tuple(files))

    async def upload(
        self, captured: Captured, *, pace: Pace, cadence: Cadence | None
    ) -> MaterializationRef:
        """Upload what is new and the descriptor; raises the store's errors.

        With a cadence the files keep out of the way of checkpoints. The caller ends the ledger's
        protection of the descriptor once the reference is in use.
        """
        try:
            async with self._turn:
                return await self._upload(captured, pace, cadence)
        finally:
            await self.effects.offload.run(shutil.rmtree, captured.directory, True)

    async def _upload(
        self, captured: Captured, pace: Pace, cadence: Cadence | None
    ) -> MaterializationRef:
        started = self.effects.clock.monotonic()
        try:
            shared = []
            for file in captured.files:
                if file.shared:
                    shared.append(await self._upload_shared(captured.id, file, pace, cadence))
            ref = await self._write_descriptor(captured, shared)
        except OSError as cause:
            self.metrics.failed += 1
            raise from_os_error(cause, f"table snapshot {captured.directory}") from cause
        except BaseException:
            self.metrics.failed += 1
            raise
        live = {file.name for file in captured.files}
        self.known = {name: known for name, known in self.known.items() if name in live}
        self.metrics.completed += 1
        seconds = self.effects.clock.monotonic() - started
        self.metrics.seconds += seconds
        self.metrics.recent_seconds.append(seconds)
        return ref

    def objects(self) -> set[str]:
        """Stored files that the next snapshot will refer to again."""
        return {file.object for file in self.known.values()}

    async def _upload_shared(
        self, snapshot: MaterializationId, file: TableFile, pace: Pace, cadence: Cadence | None
    ) -> TableObject:
        stored = self.known.get(file.name)
        if stored is not None:
            return stored
        await pace.spend(file.size)
        data = await self.effects.offload.run(file.path.read_bytes)
        digest, crc = await self.effects.offload.run(_fingerprint, data)
        if cadence is not None:
            await cadence.room_for(file.size / self._bytes_per_s, PATIENCE_S)
        label = f"{digest}-{self.operator}-{self.subtask}-{snapshot}"
        name = paths.table_file(self.generation, label)
        self.ledger.begin(name)
        try:
            await self._put(name, data)
            if isinstance(self.store, LocalFirstStore):
                await self.store.keep_file(name, file.path)
            stored = self.known[file.name] = TableObject(file.name, name, len(data), crc)
        finally:
            # From here on `known` protects it, or nobody will ever refer to it.
            self.ledger.done([name])
        return stored

    async def _put(self, name: str, data: bytes) -> None:
        clock = self.effects.clock
        started = clock.monotonic()
        await self.store.put(name, data)
        seconds = clock.monotonic() - started
        self.metrics.bytes_uploaded += len(data)
        if seconds > 0:
            self._bytes_per_s += (len(data) / seconds - self._bytes_per_s) / 2

    async def _write_descriptor(
        self, captured: Captured, shared: Iterable[TableObject]
    ) -> MaterializationRef:
        private = {f.name: f.path.read_bytes() for f in captured.files if not f.shared}
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
        name = paths.materialization(self.generation, self.operator, self.subtask, captured.id)
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


def _fingerprint(data: bytes) -> tuple[str, str]:
    return content_hash(data), checksum(data)
