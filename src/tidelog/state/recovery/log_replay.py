"""Replay of one subtask's log into its table.

Invariants: the changes replayed are exactly [materialized, seqno) without a gap; they are merged
and laid out as files before the table sees them, and the table is needed only when memory runs out
or the log ends.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec

from tidelog.changelog.block import Block, BlockKind
from tidelog.changelog.change import ChangeBatch
from tidelog.changelog.replay import LastWriterWins
from tidelog.changelog.segment import LogRange
from tidelog.checkpoint.manifest import InheritedState
from tidelog.effects import Offload
from tidelog.ids import SeqNo
from tidelog.state.recovery.base_table import BaseTable
from tidelog.state.recovery.progress import RestoreProgress
from tidelog.state.recovery.shared_log import LoggedBlock, SharedLog
from tidelog.table.port import PreparedRows, TableFactory

_GROUP_BYTES: Final = 8 << 20
"""Log fetched together at most: what comes first is replayed while the rest is on its way."""
_DECODED_BYTES: Final = 4 << 20
"""Payload decoded in one step: much against what a step costs, little against the memory."""


@dataclass(slots=True)
class LogReplay:
    """Reads, merges and loads a subtask's log, or a part of it; `what` names it in messages."""

    log: SharedLog
    offload: Offload
    progress: RestoreProgress
    factory: TableFactory
    state: InheritedState
    opening: "asyncio.Future[BaseTable]"
    """The table, which may still be opening."""
    what: str
    directory: Path
    """Absent; merged rows lie under it until the table takes them."""
    read_ahead_bytes: int
    merge_bytes: int
    key_groups: range | None = None
    """Only changes in these count; None: all of them."""
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while the table is written to: other parts of the log may be replayed into it."""
    _prepared: list[PreparedRows] = field(default_factory=list)
    """What the table has yet to take, the oldest first."""
    _drained: int = 0
    """How often the merged rows were prepared."""
    _rows: LastWriterWins = field(init=False)

    def __post_init__(self) -> None:
        name = f"log of {self.what}"
        self._rows = LastWriterWins(self.merge_bytes, self.state.upto, self.key_groups, name)

    async def run(self, inline: Iterable[LoggedBlock]) -> tuple[LogRange, ...]:
        """Replay the ranges of the log, and after them the `inline` blocks, into the table.

        Returns the log ranges trimmed to the checkpoint. Raises what the reader raises, and
        CorruptObjectError when changes are missing.
        """
        state, trimmed = self.state, []
        concerned = partial(concerns, key_groups=self.key_groups)
        groups = _groups(state.log, min(_GROUP_BYTES, self.read_ahead_bytes // 2))
        for group, next_group in pairwise([*groups, []]):
            ranges = list(filter(concerned, group))
            ahead = list(filter(concerned, next_group))
            blocks_of = dict(zip(ranges, await self.log.read(ranges, ahead), strict=True))
            for log_range in group:
                blocks = blocks_of.get(log_range)
                if blocks is None:
                    self._skip(log_range)
                else:
                    await self._merge(blocks)
                    trimmed.append(_trim(log_range, blocks, state.seqno))
        await self._merge(inline)
        await self._prepare()
        await self._load()
        self._rows.check_end(state.seqno)
        return tuple(trimmed)

    def _skip(self, changes: LogRange | Block) -> None:
        """Pass over changes of other key groups, as far as they are part of the state."""
        end = min(changes.end, self.state.seqno)
        if end > self._rows.next:
            self._rows.skip(max(changes.first, self._rows.next), end)

    async def _merge(self, blocks: Iterable[LoggedBlock]) -> None:
        batch: list[LoggedBlock] = []
        next_change, size = self._rows.next, 0
        for logged in blocks:
            block = logged.block
            # What the materialization has, and what was written after the barrier, is left out.
            if block.kind != BlockKind.CHANGES or not next_change < block.end <= self.state.seqno:
                logged.skip()
                continue
            next_change = block.end
            if concerns(block, self.key_groups):
                batch.append(logged)
                size += block.raw_bytes
                if size < _DECODED_BYTES:
                    continue
            await self._take(batch)
            batch, size = [], 0
            if self._rows.next < next_change:
                # It was not taken: it has nothing of these key groups.
                logged.skip()
                self._skip(block)
        await self._take(batch)

    async def _take(self, blocks: Sequence[LoggedBlock]) -> None:
        """Decode blocks and merge them; what does not fit into memory any more is prepared."""
        if not blocks:
            return
        with self.progress.timings.replay:
            added = iter(zip(await self.log.take(blocks), blocks, strict=True))
            while True:
                changes = await self.offload.run(_add, self._rows, added)
                self.progress.changes += changes  # others have counted in the meantime
                if not self._rows.full:
                    return
                await self._prepare()
                if not self._prepared[-1].files:
                    await self._load()

    async def _prepare(self) -> None:
        if self._rows.empty:
            return
        directory = self.directory / str(self._drained)
        self._drained += 1
        with self.progress.timings.replay:
            rows = await self.offload.run(
                lambda: self.factory.prepare(directory, *self._rows.drain())
            )
        self._prepared.append(rows)

    async def _load(self) -> None:
        # Shielded: giving up the replay must not cancel an opening that others wait for.
        base = await asyncio.shield(self.opening)
        prepared, self._prepared = self._prepared, []
        if not prepared:
            return
        async with self.turn:
            with self.progress.timings.replay:
                for rows in prepared:
                    await self.offload.run(base.table.ingest, rows)


def concerns(changes: LogRange | Block, key_groups: range | None) -> bool:
    """Whether a range or a block can hold changes in these key groups (None: all)."""
    if key_groups is None:
        return True
    return changes.key_group_min < key_groups.stop and key_groups.start <= changes.key_group_max


def _add(merge: LastWriterWins, blocks: Iterator[tuple[ChangeBatch, LoggedBlock]]) -> int:
    """Merge blocks until there are no more, or memory is full; returns how many changes count."""
    added = 0
    for batch, logged in blocks:
        added += merge.add(batch, logged.block.raw_bytes)
        if merge.full:
            break
    return added


def _groups(ranges: Iterable[LogRange], limit: int) -> list[list[LogRange]]:
    """Consecutive ranges read together, as many as fit the limit, one at least."""
    groups: list[list[LogRange]] = []
    size = limit
    for log_range in ranges:
        if size + log_range.length > limit:
            groups.append([])
            size = 0
        groups[-1].append(log_range)
        size += log_range.length
    return groups


def _trim(log_range: LogRange, blocks: Iterable[LoggedBlock], upto: SeqNo) -> LogRange:
    """The part of a range that a checkpoint up to `upto` covers.

    A segment can hold blocks flushed after the barrier; the new log goes on before them.
    """
    length, end = 0, log_range.end
    for logged in blocks:
        if logged.block.end <= upto:
            length, end = length + logged.block.size, logged.block.end
    return msgspec.structs.replace(log_range, length=length, end=end) if length else log_range
