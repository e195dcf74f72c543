"""Replay of one subtask's log into its table.

Invariants: the changes replayed are exactly [materialized, seqno) without a gap; they are merged
before the table sees them, and the table is needed only when memory runs out or the log ends.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

from tidelog.changelog.block import Block, BlockKind
from tidelog.changelog.replay import LastWriterWins
from tidelog.changelog.segment import LogRange
from tidelog.checkpoint.manifest import InheritedState
from tidelog.effects import Offload
from tidelog.ids import SeqNo
from tidelog.state.restore.base_table import BaseTable
from tidelog.state.restore.progress import RestoreProgress
from tidelog.state.restore.shared_log import LoggedBlock, SharedLog
from tidelog.table.port import Table


@dataclass(slots=True)
class LogReplay:
    """Reads, merges and loads the log of one subtask, or a part of it; `what` names it in
    messages.
    """

    log: SharedLog
    offload: Offload
    progress: RestoreProgress
    state: InheritedState
    what: str
    read_ahead_bytes: int
    merge_bytes: int
    key_groups: range | None = None
    """Only changes in these count; None: all of them."""
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while the table is written to: other parts of the log may be replayed into it."""

    async def run(
        self, inline: Iterable[LoggedBlock], opening: "asyncio.Future[BaseTable]"
    ) -> tuple[LogRange, ...]:
        """Replay into the table, which may still be opening.

        Returns the log ranges trimmed to the checkpoint. Raises what the reader raises, and
        CorruptObjectError when changes are missing.
        """
        state, name = self.state, f"log of {self.what}"
        merge = LastWriterWins(self.merge_bytes, state.upto, self.key_groups, name)
        trimmed = []
        for group in _groups(state.log, self.read_ahead_bytes):
            wanted = [log_range for log_range in group if concerns(log_range, self.key_groups)]
            with self.progress.timings.fetch_log:
                read = dict(zip(wanted, await self.log.read(wanted), strict=True))
            for log_range in group:
                if log_range not in read:
                    self._skip(log_range, merge)
                    continue
                await self._merge(read[log_range], merge, opening)
                blocks = [logged.block for logged in read[log_range]]
                trimmed.append(_trim(log_range, blocks, state.seqno))
        await self._merge(inline, merge, opening)
        await self._load(merge, opening)
        merge.check_end(state.seqno)
        return tuple(trimmed)

    def _skip(self, held: LogRange | Block, merge: LastWriterWins) -> None:
        """Pass over changes of other key groups, as far as they are part of the state."""
        end = min(held.end, self.state.seqno)
        if end > merge.next:
            merge.skip(max(held.first, merge.next), end)

    async def _merge(
        self,
        blocks: Iterable[LoggedBlock],
        merge: LastWriterWins,
        opening: "asyncio.Future[BaseTable]",
    ) -> None:
        for logged in blocks:
            block = logged.block
            # What the materialization has, and what was written behind the barrier, is left out.
            if block.kind != BlockKind.CHANGES or not merge.next < block.end <= self.state.seqno:
                logged.skip()
                continue
            if not concerns(block, self.key_groups):
                logged.skip()
                self._skip(block, merge)
                continue
            with self.progress.timings.replay:
                taken = merge.add(await logged.take())
            self.progress.replayed(taken)
            if merge.full:
                await self._load(merge, opening)

    async def _load(self, merge: LastWriterWins, opening: "asyncio.Future[BaseTable]") -> None:
        # Shielded: giving up the replay must not cancel an opening that others wait for.
        foundation = await asyncio.shield(opening)
        if merge.empty:
            return
        async with self.turn:
            with self.progress.timings.replay:
                await self.offload.run(_drain, merge, foundation.table)


def concerns(held: LogRange | Block, key_groups: range | None) -> bool:
    """Whether a range or a block can hold changes in these key groups (None: all)."""
    if key_groups is None:
        return True
    return held.key_group_min < key_groups.stop and key_groups.start <= held.key_group_max


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
