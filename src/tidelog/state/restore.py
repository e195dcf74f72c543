"""Restore: a subtask's table from its last materialization plus the log behind it.

Invariants: every byte is checked (CRC of each file, block and document) before it is used; what
does not fit raises, and the store is left as it was. Table and log are fetched side by side.
"""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidelog.changelog.block import Block, SealedBlock, open_block
from tidelog.checkpoint.bounded import gather_bounded
from tidelog.checkpoint.manifest import Descriptor, SubtaskState, TableObject, decode_descriptor
from tidelog.checkpoint.table_file import check_table_file
from tidelog.dstl.reader import SegmentReader
from tidelog.dstl.segment import LogRange
from tidelog.effects import Effects
from tidelog.errors import CorruptObjectError, ObjectNotFoundError, RestoreError
from tidelog.ids import SeqNo
from tidelog.state.log_replay import LogReplay
from tidelog.state.progress import RestoreProgress
from tidelog.storage.port import ObjectStore
from tidelog.table.failures import translate
from tidelog.table.port import Table, TableFactory

_OLDER = "restore an older slot (`tidelog checkpoints list URL` shows them)"


@dataclass(frozen=True, slots=True)
class RestoreConfig:
    """Bounds of a restore; sizes in bytes."""

    concurrency: int = 8
    """Requests at a time."""
    read_ahead_bytes: int = 64 << 20
    """Log held in memory at a time."""
    replay_bytes: int = 256 << 20
    """Merged rows held in memory before they go to the table."""


@dataclass(frozen=True, slots=True)
class RestoredSubtask:
    """A subtask's state, ready to run on."""

    table: Table
    seqno: SeqNo
    ranges: tuple[LogRange, ...]
    """The log behind the materialization, trimmed to what the checkpoint covers."""
    inline: tuple[SealedBlock, ...]
    """Blocks that lived in the manifest and must be logged again."""
    known: dict[str, TableObject]
    """Stored files of the table, by local name."""
    descriptor: Descriptor | None


@dataclass(slots=True)
class Restorer:
    """Restores the subtasks of one checkpoint."""

    store: ObjectStore
    effects: Effects
    factory: TableFactory
    progress: RestoreProgress
    config: RestoreConfig = field(default_factory=RestoreConfig)
    _permits: asyncio.Semaphore = field(init=False)
    _reader: SegmentReader = field(init=False)

    def __post_init__(self) -> None:
        self._permits = asyncio.Semaphore(self.config.concurrency)
        # Every range is read once: a cache would only hold memory.
        self._reader = SegmentReader(self.store, 0, self.config.concurrency)

    async def restore(self, state: SubtaskState, directory: Path, what: str) -> RestoredSubtask:
        """Build the subtask's table under `directory`.

        Raises RestoreError, CorruptObjectError, FormatVersionError and what the store raises.
        """
        descriptor = await self._descriptor(state, what)
        inline = [open_block(data, 0, f"inline log of {what}") for data in state.inline]
        # The log is fetched and merged while the table's files arrive.
        opening = asyncio.ensure_future(self._open_table(descriptor, directory))
        replay = LogReplay(
            self._reader,
            self.effects.offload,
            self.progress,
            state,
            what,
            self.config.read_ahead_bytes,
            self.config.replay_bytes,
        )
        replaying = asyncio.ensure_future(replay.run(inline, opening))
        try:
            table, ranges = await asyncio.gather(opening, replaying)
        except BaseException:
            await _give_up(opening, replaying)
            raise
        known = {file.name: file for file in descriptor.shared} if descriptor else {}
        sealed = tuple(map(_sealed, inline, state.inline))
        return RestoredSubtask(table, state.seqno, ranges, sealed, known, descriptor)

    async def _descriptor(self, state: SubtaskState, what: str) -> Descriptor | None:
        ref = state.materialization
        if ref is None:
            return None
        descriptor = decode_descriptor(
            await self._get(ref.descriptor, f"the materialization of {what}"), ref.descriptor
        )
        if descriptor.table != self.factory.kind:
            raise RestoreError(
                f"the table of {what}",
                expected=f"kind {self.factory.kind!r}",
                found=f"kind {descriptor.table!r}",
                action=f"run the job with --table {descriptor.table}",
            )
        if descriptor.upto != ref.upto:
            raise CorruptObjectError(
                f"object {ref.descriptor}",
                expected=f"a snapshot of the changes below {ref.upto}",
                found=f"below {descriptor.upto}",
                action=_OLDER,
            )
        return descriptor

    async def _open_table(self, descriptor: Descriptor | None, directory: Path) -> Table:
        if descriptor is None:
            return self.factory.create(directory)
        await self.effects.offload.run(_lay_out, descriptor, directory)
        await gather_bounded(
            descriptor.shared, lambda file: self._download(file, directory / file.name)
        )
        return await self.effects.offload.run(self.factory.restore, directory)

    async def _download(self, file: TableObject, path: Path) -> None:
        async with self._permits:
            data = await self._get(file.object, "a table file", file.size)
            await self.effects.offload.run(_check_and_write, file, data, path)
            self.progress.fetched(len(data))

    async def _get(self, name: str, what: str, length: int | None = None) -> bytes:
        try:
            return await self.store.get(name, 0, length)
        except ObjectNotFoundError as cause:
            raise RestoreError(
                f"object {name}",
                expected=f"{what}, as the checkpoint names it",
                found="no such object",
                action=f"{_OLDER}, and find out what else deletes objects under this URL",
            ) from cause


async def _give_up(opening: "asyncio.Task[Table]", replaying: "asyncio.Task[Any]") -> None:
    """End both halves of a failed restore; a table that was opened is closed."""
    # The opening ends by itself: cancelled, its thread would go on writing files behind our back.
    replaying.cancel()
    await asyncio.gather(opening, replaying, return_exceptions=True)
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()


def _lay_out(descriptor: Descriptor, directory: Path) -> None:
    try:
        directory.mkdir(parents=True)
    except OSError as error:
        raise translate(error, directory) from error
    for name, data in descriptor.private.items():
        _write(directory / name, data)


def _write(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise translate(error, path.parent) from error


def _check_and_write(file: TableObject, data: bytes, path: Path) -> None:
    check_table_file(file, data, _OLDER)
    _write(path, data)


def _sealed(block: Block, data: bytes) -> SealedBlock:
    return SealedBlock(
        kind=block.kind,
        first=block.first,
        count=block.count,
        key_group_min=block.key_group_min,
        key_group_max=block.key_group_max,
        raw_bytes=block.raw_bytes,
        data=data,
    )
