"""What lies in the logs of subtasks: their blocks, and the changes in them by state.

Invariants: a range is read once, however many checkpoints name it; a worker holds the blocks of a
few segments at a time, and what it returns are figures of blocks, never changes. A segment that is
gone contributes nothing, which the caller notices.
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from tidelog.changelog.block import Block, BlockKind, open_block
from tidelog.changelog.change import CHANGE_OVERHEAD_BYTES
from tidelog.changelog.reader import SegmentReader
from tidelog.changelog.segment import LogRange
from tidelog.checkpoint.manifest import Checkpoint, SubtaskState
from tidelog.concurrency import Progress, gather_bounded
from tidelog.cost.measured.facts import BlockFacts, MeasuredLog, Tally, Written
from tidelog.engines import Engine, Workspace
from tidelog.errors import RestoreError
from tidelog.events import Event
from tidelog.ids import SubtaskId

logger = logging.getLogger(__name__)

_AT_ONCE: Final = 4
"""Segments that a worker reads at a time."""
_UNIT_BYTES: Final = 32 << 20
"""A worker reads so much at least: segments are many and small."""


class _Rows(NamedTuple):
    """The puts, or the deletes, of one state in a block."""

    state_id: int
    deletes: bool
    tally: Tally


class MeasuredBlock(NamedTuple):
    """Figures of a block; equal for all copies of one block of a subtask."""

    metadata: bool
    first: int
    end: int
    raw_bytes: int
    stored_bytes: int
    rows: tuple[_Rows, ...] = ()
    """Its changes by state, where these are asked for."""


Logs = Mapping[MeasuredLog, Sequence[MeasuredBlock]]


async def read_log(
    engine: Engine,
    states: Mapping[MeasuredLog, SubtaskState],
    progress: Progress,
    *,
    by_state: bool = False,
) -> Logs:
    """The blocks in the logs of these subtasks, with `by_state` also the changes in them.

    Raises CorruptObjectError and FormatVersionError, and what the store raises.
    """
    by_segment: dict[str, dict[LogRange, None]] = defaultdict(dict)
    for state in states.values():
        for part in state.log:
            by_segment[part.segment][part] = None
    units = [_LogUnit(ranges, by_state) for ranges in _bundled(map(tuple, by_segment.values()))]
    blocks: dict[LogRange, Sequence[MeasuredBlock]] = {}
    for found in await engine.run(units, progress):
        blocks |= found.blocks
        for error in found.missing:
            Event.SEGMENT_SKIPPED.log(logger, error=error)
    return {
        log: [
            *(block for part in state.log for block in blocks.get(part, ())),
            *(_logged(block, by_state) for block in _inline(log, state)),
        ]
        for log, state in states.items()
    }


def subtasks_of(checkpoints: Iterable[Checkpoint]) -> dict[MeasuredLog, SubtaskState]:
    """The subtasks of all these checkpoints."""
    return {
        MeasuredLog(checkpoint.slot, operator.id, state.index): state
        for checkpoint in checkpoints
        for operator, state in checkpoint.subtasks()
    }


def block_facts(logs: Logs) -> BlockFacts:
    """The blocks summed up: those of each log, and each block of a subtask once."""
    distinct: dict[SubtaskId, set[MeasuredBlock]] = defaultdict(set)
    for log, blocks in logs.items():
        distinct[log.who].update(blocks)
    return BlockFacts(
        {log: _tally(blocks) for log, blocks in logs.items()},
        {who: _tally(found) for who, found in distinct.items()},
    )


def written(states: Mapping[MeasuredLog, SubtaskState], logs: Logs) -> dict[Written, Tally]:
    """The changes in logs that were read by state, without those that are in the table, too."""
    found: dict[Written, Tally] = defaultdict(Tally)
    for log, blocks in logs.items():
        for block in blocks:
            if states[log].upto <= block.first and block.end <= states[log].seqno:
                for state_id, deletes, tally in block.rows:
                    found[Written(log, state_id, deletes)] += tally
    return dict(found)


class _Read(NamedTuple):
    """What a unit has read, and why segments could not be."""

    blocks: dict[LogRange, Sequence[MeasuredBlock]]
    missing: list[RestoreError]


@dataclass(frozen=True, slots=True)
class _LogUnit:
    """Ranges of a few segments."""

    segments: tuple[tuple[LogRange, ...], ...]
    by_state: bool

    @property
    def weight(self) -> int:
        """Bytes of the ranges."""
        return sum(map(_stored_bytes, self.segments))

    async def run(self, workspace: Workspace) -> _Read:
        """The blocks of all ranges; raises what the store raises."""
        reader = SegmentReader(workspace.store, cache_bytes=0)
        found = _Read({}, [])

        async def read(ranges: tuple[LogRange, ...]) -> None:
            try:
                blocks = await reader.read_ranges(ranges)
            except RestoreError as error:  # The segment is gone: dropped meanwhile, or missing.
                found.missing.append(error)
                return
            for part, own in zip(ranges, blocks, strict=True):
                found.blocks[part] = [_logged(block, self.by_state) for block in own]

        await gather_bounded(self.segments, read, at_once=_AT_ONCE)
        return found


def _bundled(
    segments: Iterable[tuple[LogRange, ...]],
) -> Iterator[tuple[tuple[LogRange, ...], ...]]:
    """Segments put together until there is enough for a unit."""
    bundle: list[tuple[LogRange, ...]] = []
    for ranges in segments:
        bundle.append(ranges)
        if sum(map(_stored_bytes, bundle)) >= _UNIT_BYTES:
            yield tuple(bundle)
            bundle = []
    if bundle:
        yield tuple(bundle)


def _stored_bytes(ranges: Iterable[LogRange]) -> int:
    return sum(part.length for part in ranges)


def _inline(log: MeasuredLog, state: SubtaskState) -> list[Block]:
    name = f"checkpoint {log.slot}, inline log of {log.operator}-{log.subtask}"
    return [open_block(data, 0, name) for data in state.inline]


def _logged(block: Block, by_state: bool) -> MeasuredBlock:
    metadata = block.kind == BlockKind.METADATA
    rows = tuple(_rows(block)) if by_state and block.kind == BlockKind.CHANGES else ()
    return MeasuredBlock(metadata, block.first, block.end, block.raw_bytes, block.size, rows)


def _rows(block: Block) -> Iterator[_Rows]:
    count: Counter[tuple[int, bool]] = Counter()
    raw_bytes: Counter[tuple[int, bool]] = Counter()
    batch = block.changes()
    for key, value in zip(batch.keys, batch.values, strict=True):
        kind = int.from_bytes(key[2:4], "big"), value is None
        count[kind] += 1
        raw_bytes[kind] += len(key) + len(value or b"") + CHANGE_OVERHEAD_BYTES
    return (_Rows(*kind, Tally(changes=n, raw_bytes=raw_bytes[kind])) for kind, n in count.items())


def _tally(blocks: Iterable[MeasuredBlock]) -> Tally:
    found = list(blocks)
    return Tally(
        blocks=len(found),
        changes=sum(block.end - block.first for block in found),
        raw_bytes=sum(block.raw_bytes for block in found),
        stored_bytes=sum(block.stored_bytes for block in found),
    )
