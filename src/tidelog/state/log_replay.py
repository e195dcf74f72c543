"""Replay of one subtask's log into its table.

Invariants: the changes replayed are exactly [materialized, seqno) without a gap; they are merged
before the table sees them, and the table is needed only when memory runs out or the log ends.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from tidelog.changelog.block import Block, BlockKind
from tidelog.changelog.replay import LastWriterWins
from tidelog.checkpoint.manifest import SubtaskState
from tidelog.dstl.reader import SegmentReader
from tidelog.dstl.segment import LogRange
from tidelog.effects import Offload
from tidelog.errors import CorruptObjectError
from tidelog.ids import SeqNo
from tidelog.state.progress import RestoreProgress
from tidelog.table.port import Table


@dataclass(slots=True)
class LogReplay:
    """Reads, merges and loads the log of one subtask; `what` names it in messages."""

    reader: SegmentReader
    offload: Offload
    progress: RestoreProgress
    state: SubtaskState
    what: str
    read_ahead_bytes: int
    merge_bytes: int

    async def run(
        self, inline: Iterable[Block], table: "asyncio.Future[Table]"
    ) -> tuple[LogRange, ...]:
        """Replay into the table, which may still be opening.

        Returns the log ranges trimmed to the checkpoint. Raises what the reader raises, and
        CorruptObjectError when changes are missing.
        """
        state = self.state
        start = state.upto
        merge = LastWriterWins(self.merge_bytes, start, name=f"log of {self.what}")
        trimmed = []
        for group in _groups(state.log, self.read_ahead_bytes):
            for log_range, blocks in zip(group, await self.reader.read_ranges(group), strict=True):
                await self._merge(blocks, merge, table)
                trimmed.append(_trim(log_range, blocks, state.seqno))
                self.progress.fetched(log_range.length)
        await self._merge(inline, merge, table)
        await self._load(merge, table)
        if merge.next != state.seqno:
            raise CorruptObjectError(
                f"log of {self.what}",
                expected=f"changes up to {state.seqno}",
                found=f"changes up to {merge.next}",
                action="restore an older slot (`tidelog checkpoints list URL` shows them)",
            )
        return tuple(trimmed)

    async def _merge(
        self, blocks: Iterable[Block], merge: LastWriterWins, table: "asyncio.Future[Table]"
    ) -> None:
        for block in blocks:
            # What the materialization has, and what was written behind the barrier, is left out.
            if block.kind == BlockKind.CHANGES and merge.next < block.end <= self.state.seqno:
                merge.add(await self.offload.run(block.changes))
                self.progress.replayed(block.count)
                if merge.full:
                    await self._load(merge, table)

    async def _load(self, merge: LastWriterWins, table: "asyncio.Future[Table]") -> None:
        # Shielded: giving up the replay must not cancel an opening that others wait for.
        await self.offload.run(_drain, merge, await asyncio.shield(table))


def _drain(merge: LastWriterWins, table: Table) -> None:
    keys, values = merge.drain()
    if keys:
        table.load(keys, values)


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


def _trim(log_range: LogRange, blocks: Iterable[Block], upto: SeqNo) -> LogRange:
    """The part of a range that a checkpoint up to `upto` covers.

    A segment can hold blocks flushed after the barrier; the new log goes on before them.
    """
    kept = [block for block in blocks if block.end <= upto]
    if not kept:
        return log_range
    return LogRange(
        log_range.segment,
        log_range.offset,
        sum(block.size for block in kept),
        log_range.first,
        kept[-1].end,
        log_range.key_group_min,
        log_range.key_group_max,
    )
