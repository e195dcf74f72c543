"""Facts gathered in this process, from the ranges that manifests name.

Invariants: a range is read once, however many checkpoints name it; memory holds the blocks of a few
segments at a time; a segment that is gone contributes nothing, which the caller notices.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

from tidelog.changelog.block import Block, BlockKind, open_block
from tidelog.changelog.change import CHANGE_OVERHEAD_BYTES
from tidelog.changelog.reader import SegmentReader
from tidelog.changelog.segment import LogRange
from tidelog.checkpoint.manifest import Checkpoint, SubtaskState
from tidelog.concurrency import Progress, gather_bounded
from tidelog.cost.measured.facts import (
    BlockFacts,
    Held,
    Rows,
    Tally,
    Written,
)
from tidelog.errors import RestoreError
from tidelog.events import Event
from tidelog.ids import SubtaskId
from tidelog.storage.port import ObjectStore

logger = logging.getLogger(__name__)

_AT_ONCE: Final = 4
"""Segments that are read at a time."""

Visit = Callable[[LogRange, Sequence[Block]], None]


class _BlockKey(NamedTuple):
    """The key of a block within its subtask: equal for all copies of one block."""

    metadata: bool
    first: int
    end: int
    raw_bytes: int
    stored_bytes: int


@dataclass(frozen=True, slots=True)
class LocalEngine:
    """Plain Python."""

    store: ObjectStore

    name: ClassVar[str] = "local"

    async def blocks(self, checkpoints: Sequence[Checkpoint], progress: Progress) -> BlockFacts:
        """See `Engine`."""
        keys: dict[LogRange, list[_BlockKey]] = {}
        states = _subtasks(checkpoints)

        def keep(log_range: LogRange, blocks: Iterable[Block]) -> None:
            keys[log_range] = list(map(_key, blocks))

        await self._visit((part for state in states.values() for part in state.log), keep, progress)
        held: dict[Held, Tally] = {}
        distinct: dict[SubtaskId, set[_BlockKey]] = defaultdict(set)
        for log, state in states.items():
            own = [key for part in state.log for key in keys.get(part, ())]
            own += map(_key, _inline(log, state))
            held[log] = _tally(own)
            distinct[log.who].update(own)
        return BlockFacts(held, {who: _tally(found) for who, found in distinct.items()})

    async def changes(
        self, checkpoints: Sequence[Checkpoint], logs: Collection[Held], progress: Progress
    ) -> Mapping[Written, Rows]:
        """See `Engine`."""
        states = {log: state for log, state in _subtasks(checkpoints).items() if log in logs}
        readers: dict[LogRange, list[Held]] = defaultdict(list)
        for log, state in states.items():
            for part in state.log:
                readers[part].append(log)
        found: dict[Written, Rows] = defaultdict(Rows)

        def count(log_range: LogRange, blocks: Iterable[Block]) -> None:
            for log in readers[log_range]:
                _count(log, states[log], blocks, found)

        await self._visit(readers, count, progress)
        for log, state in states.items():
            _count(log, state, _inline(log, state), found)
        return dict(found)

    async def _visit(self, ranges: Iterable[LogRange], visit: Visit, progress: Progress) -> None:
        """Call `visit` with the blocks of every range once, segment by segment."""
        by_segment: dict[str, dict[LogRange, None]] = defaultdict(dict)
        for log_range in ranges:
            by_segment[log_range.segment][log_range] = None
        reader = SegmentReader(self.store, cache_bytes=0)

        async def read(segment: str) -> None:
            wanted = list(by_segment[segment])
            try:
                found = await reader.read_ranges(wanted)
            except RestoreError as error:  # The segment is gone: dropped meanwhile, or missing.
                Event.SEGMENT_SKIPPED.log(logger, error=error)
                return
            for log_range, blocks in zip(wanted, found, strict=True):
                visit(log_range, blocks)

        await gather_bounded(by_segment, read, progress, _AT_ONCE)


def _subtasks(checkpoints: Iterable[Checkpoint]) -> dict[Held, SubtaskState]:
    """The subtasks of all these checkpoints."""
    return {
        Held(checkpoint.slot, operator.id, state.index): state
        for checkpoint in checkpoints
        for operator, state in checkpoint.subtasks()
    }


def _inline(log: Held, state: SubtaskState) -> list[Block]:
    name = f"checkpoint {log.slot}, inline log of {log.operator}-{log.subtask}"
    return [open_block(data, 0, name) for data in state.inline]


def _key(block: Block) -> _BlockKey:
    metadata = block.kind == BlockKind.METADATA
    return _BlockKey(metadata, block.first, block.end, block.raw_bytes, block.size)


def _tally(keys: Collection[_BlockKey]) -> Tally:
    return Tally(
        blocks=len(keys),
        changes=sum(key.end - key.first for key in keys),
        raw_bytes=sum(key.raw_bytes for key in keys),
        stored_bytes=sum(key.stored_bytes for key in keys),
    )


def _count(
    log: Held, state: SubtaskState, blocks: Iterable[Block], found: dict[Written, Rows]
) -> None:
    """Add the changes of blocks that lie in a log."""
    for block in blocks:
        if block.kind != BlockKind.CHANGES or block.first < state.upto or block.end > state.seqno:
            continue
        batch = block.changes()
        for key, value in zip(batch.keys, batch.values, strict=True):
            written = Written(log, int.from_bytes(key[2:4], "big"), value is None)
            size = len(key) + len(value or b"") + CHANGE_OVERHEAD_BYTES
            found[written] += Rows(1, size)
