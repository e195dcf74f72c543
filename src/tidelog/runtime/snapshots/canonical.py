"""Canonical savepoints: all rows of a subtask, written as a log that starts with nothing.

Invariants: the rows are those at the barrier, whatever the task does meanwhile; they go to segments
of their own, so the log that the job goes on writing neither waits for them nor shares objects with
them. They are numbered from the subtask's last change on and stand for no change of the job.
Format: docs/internals/format.md, "Canonical savepoints".
"""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from tidelog.changelog.block import SealedBlock, seal, seal_metadata
from tidelog.changelog.chain import SubtaskLogChain
from tidelog.changelog.change import CHANGE_OVERHEAD_BYTES, ChangeBatch
from tidelog.changelog.uploader import Uploader
from tidelog.checkpoint.manifest import SubtaskState
from tidelog.ids import CheckpointId, SeqNo
from tidelog.materialize.table_snapshot import TableSnapshots
from tidelog.runtime.snapshots.snapshotter import (
    Captures,
    PendingSnapshot,
    SubtaskPosition,
    state_at,
)
from tidelog.state.backend import KeyedBackend
from tidelog.table.frame import Row
from tidelog.table.port import Freeze, Table, TableFactory

BLOCK_BYTES: Final = 1 << 20
"""Raw bytes of rows after which a block ends."""
_ROWS: Final = 8_192
"""Rows read in one go."""


@dataclass(slots=True)
class _Writing:
    uploader: Uploader
    users: int = 0
    running: asyncio.Task[None] | None = None


@dataclass(slots=True)
class RowUploads:
    """Packs the rows of all subtasks into the segments of a savepoint."""

    uploader_of: Callable[[CheckpointId], Uploader]
    """Makes what uploads the segments of a savepoint."""
    _writing: dict[CheckpointId, _Writing] = field(default_factory=dict)

    @asynccontextmanager
    async def of(self, checkpoint: CheckpointId) -> AsyncIterator[_Writing]:
        """The uploads of a savepoint, going on as long as some subtask writes."""
        writing = self._writing.get(checkpoint)
        if writing is None:
            # One savepoint at a time: the uploads of an earlier one have ended.
            writing = _Writing(self.uploader_of(checkpoint))
            self._writing = {checkpoint: writing}
        writing.users += 1
        if writing.running is None:
            writing.running = asyncio.ensure_future(writing.uploader.run())
        try:
            yield writing
        finally:
            writing.users -= 1
            if writing.users == 0:
                writing.running.cancel()
                writing.running = None


@dataclass(slots=True)
class CanonicalSnapshotter(Captures):
    """Takes the canonical savepoints of one subtask."""

    backend: KeyedBackend
    snapshots: TableSnapshots
    factory: TableFactory
    uploads: RowUploads

    async def capture(self, checkpoint: CheckpointId, position: SubtaskPosition) -> PendingSnapshot:
        await self.snapshots.prepare()
        directory = self.snapshots.directory / f"savepoint-{checkpoint}"
        lay_out = self.snapshots.table.freeze(directory)
        pending = _PendingRows(
            checkpoint,
            state_at(self.backend, self.snapshots, position),
            seal_metadata(msgspec.json.encode(self.backend.registry.infos()), self.backend.seqno),
            SubtaskLogChain(self.snapshots.operator, self.snapshots.subtask),
            directory,
            lay_out,
            self,
        )
        self.pending[checkpoint] = pending
        return pending


class _PendingRows(msgspec.Struct, frozen=True):
    checkpoint: CheckpointId
    state: SubtaskState
    metadata: SealedBlock
    chain: SubtaskLogChain
    directory: Path
    lay_out: Freeze
    """Writes the files of the frozen table."""
    owner: CanonicalSnapshotter

    async def settle(self) -> SubtaskState:
        offload, hydration = self.owner.snapshots.effects.offload, self.owner.snapshots.hydration
        try:
            if hydration is not None:
                await hydration.whole()
            # The table is closed soon after a cancellation, so not while it is worked on.
            await offload.run_to_end(self.lay_out)
            table = await offload.run(self.owner.factory.restore, self.directory)
            try:
                async with self.owner.uploads.of(self.checkpoint) as writing:
                    return await self._write_and_upload(writing, table)
            finally:
                await offload.run(table.close)
        finally:
            await self.discard()

    async def discard(self) -> None:
        await self.owner.snapshots.effects.offload.run(shutil.rmtree, self.directory, True)

    def objects(self) -> set[str]:
        return self.chain.objects()

    async def _write_and_upload(self, writing: _Writing, table: Table) -> SubtaskState:
        """Write the rows while the uploads go on; raises the error that ended the uploads."""
        assert writing.running is not None
        rows = asyncio.ensure_future(self._write(writing.uploader, table))
        try:
            await asyncio.wait([rows, writing.running], return_when=asyncio.FIRST_COMPLETED)
            if not rows.done():
                writing.running.result()
            return await rows
        finally:
            rows.cancel()

    async def _write(self, uploader: Uploader, table: Table) -> SubtaskState:
        seal_next = self.owner.snapshots.effects.offload.run
        uploader.submit_block(self.chain, self.metadata)
        rows = table.scan(b"", None)
        seqno = self.state.seqno
        while (block := await seal_next(_next_block, rows, seqno)) is not None:
            uploader.submit_block(self.chain, block)
            seqno = block.end
            await uploader.admit()
        durable = await uploader.persist(self.chain.capture())
        return msgspec.structs.replace(
            self.state,
            start=self.state.seqno,
            seqno=seqno,
            log=durable.ranges,
            inline=durable.inline,
        )


def _next_block(rows: Iterator[Row], first: SeqNo) -> SealedBlock | None:
    """The next rows as a block; None when there is none left."""
    keys: list[bytes] = []
    values: list[bytes | None] = []
    size = 0
    while size < BLOCK_BYTES:
        read = list(islice(rows, _ROWS))
        for key, value in read:
            keys.append(key)
            values.append(value)
            size += len(key) + len(value) + CHANGE_OVERHEAD_BYTES
        if len(read) < _ROWS:
            break
    return seal(ChangeBatch(first, keys, values)) if keys else None
