"""What lies in the logs of subtasks: their blocks, and how many changes in them are deletes.

Invariants: a range is read once, however many checkpoints name it; a worker holds the blocks of a
few segments at a time, and what it returns are figures of blocks, never changes. A segment that is
gone contributes nothing; the caller is told which.
"""

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from tidelog.changelog.block import Block, BlockKind, open_block
from tidelog.changelog.reader import SegmentReader
from tidelog.changelog.segment import LogRange
from tidelog.checkpoint.manifest import Checkpoint, SubtaskState
from tidelog.concurrency import Progress, together
from tidelog.cost.measured.facts import BlockFacts, LogKey, Tally
from tidelog.engines import Engine, Workspace
from tidelog.errors import RestoreError
from tidelog.events import Event
from tidelog.ids import SubtaskId

logger = logging.getLogger(__name__)

_AT_ONCE: Final = 4
"""Segments that a worker reads at a time."""
_UNIT_BYTES: Final = 32 << 20
"""A worker reads so much at least: segments are many and small."""


class MeasuredBlock(NamedTuple):
    """Figures of a block; equal for all copies of one block of a subtask."""

    metadata: bool
    first: int
    end: int
    raw_bytes: int
    stored_bytes: int
    deletes: int = 0
    """Changes that delete a row, where they are counted."""

    @property
    def tally(self) -> Tally:
        changes = self.end - self.first
        return Tally(1, changes, self.raw_bytes, self.stored_bytes, self.deletes)


_Ranges = Mapping[LogRange, bool]
"""Parts of one segment, each with whether its deletes are counted."""

Logs = Mapping[LogKey, Sequence[MeasuredBlock]]


async def read_log(
    engine: Engine,
    states: Mapping[LogKey, SubtaskState],
    progress: Progress,
    counted: Collection[str] = (),
) -> tuple[Logs, dict[str, RestoreError]]:
    """The blocks in the logs of these subtasks, and the errors of segments that are gone, by name;
    the deletes of the operators `counted` are counted.

    Raises CorruptObjectError and FormatVersionError, and what the store raises.
    """
    by_segment: dict[str, dict[LogRange, bool]] = defaultdict(dict)
    for (_, who), state in states.items():
        for part in state.log:
            by_segment[part.segment][part] = who.operator in counted
    units = [*map(_LogUnit, _bundled(by_segment.values()))]
    blocks: dict[LogRange, Sequence[MeasuredBlock]] = {}
    segment_errors: dict[str, RestoreError] = {}
    for unit_blocks, unit_errors in await engine.run(units, progress):
        blocks |= unit_blocks
        segment_errors |= unit_errors
    for error in segment_errors.values():
        Event.SEGMENT_SKIPPED.log(logger, error=error)
    logs: dict[LogKey, list[MeasuredBlock]] = {}
    for (slot, who), state in states.items():
        logged = logs[slot, who] = []
        for part in state.log:
            logged += blocks.get(part, ())
        for data in state.inline:
            block = open_block(data, 0, f"checkpoint {slot}, inline log of {who}")
            logged.append(_logged(block, who.operator in counted))
    return logs, segment_errors


def subtasks_of(checkpoints: Iterable[Checkpoint]) -> dict[LogKey, SubtaskState]:
    states: dict[LogKey, SubtaskState] = {}
    for checkpoint in checkpoints:
        for operator, state in checkpoint.subtasks():
            states[checkpoint.slot, SubtaskId(operator.id, state.index)] = state
    return states


def block_facts(logs: Logs) -> BlockFacts:
    """The blocks summed up: those of each log, and each block of a subtask once."""
    distinct: dict[SubtaskId, set[MeasuredBlock]] = defaultdict(set)
    for (_, who), blocks in logs.items():
        distinct[who].update(blocks)
    return BlockFacts(
        {log: _tally(blocks) for log, blocks in logs.items()},
        {who: _tally(blocks) for who, blocks in distinct.items()},
    )


_Read = tuple[dict[LogRange, Sequence[MeasuredBlock]], dict[str, RestoreError]]
"""What a unit has read, and the errors of segments that are gone."""


@dataclass(frozen=True, slots=True)
class _LogUnit:
    """Ranges of a few segments."""

    segments: tuple[_Ranges, ...]

    @property
    def weight(self) -> int:
        return sum(map(_stored_bytes, self.segments))

    async def run(self, workspace: Workspace) -> _Read:
        reader = SegmentReader(workspace.store)
        blocks_by_range: dict[LogRange, Sequence[MeasuredBlock]] = {}
        errors: dict[str, RestoreError] = {}

        async def read(ranges: _Ranges) -> None:
            parts = [*ranges]
            try:
                blocks = await reader.read_ranges(parts)
            except RestoreError as error:  # The segment is gone: dropped meanwhile, or missing.
                errors[parts[0].segment] = error
                return
            for (part, counted), part_blocks in zip(ranges.items(), blocks, strict=True):
                blocks_by_range[part] = [_logged(block, counted) for block in part_blocks]

        await together(map(read, self.segments), _AT_ONCE)
        return blocks_by_range, errors


def _bundled(segments: Iterable[_Ranges]) -> Iterator[tuple[_Ranges, ...]]:
    """Segments put together until there is enough for a unit."""
    bundle: list[_Ranges] = []
    for ranges in segments:
        bundle.append(ranges)
        if sum(map(_stored_bytes, bundle)) >= _UNIT_BYTES:
            yield tuple(bundle)
            bundle = []
    if bundle:
        yield tuple(bundle)


def _stored_bytes(ranges: _Ranges) -> int:
    return sum(part.length for part in ranges)


def _logged(block: Block, counted: bool) -> MeasuredBlock:
    metadata = block.kind == BlockKind.METADATA
    deletes = 0
    if counted and block.kind == BlockKind.CHANGES:
        deletes = block.changes().values.count(None)
    return MeasuredBlock(metadata, block.first, block.end, block.raw_bytes, block.size, deletes)


def _tally(blocks: Iterable[MeasuredBlock]) -> Tally:
    return sum((block.tally for block in blocks), Tally())
