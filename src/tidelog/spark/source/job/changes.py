"""View `changes` of a store: the log of a checkpoint, a part per segment.

Invariants: a part yields exactly the changes of its ranges, each once and in order within a range;
changes that the log should have and has not are an error; a block becomes Arrow columns without a
loop over its changes.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.changelog.block import Block, BlockKind, open_block, record_batch
from tidelog.changelog.change import OP_PUT
from tidelog.changelog.reader import SegmentReader
from tidelog.changelog.segment import LogRange
from tidelog.checkpoint.manifest import Checkpoint, OperatorState, StateInfo, SubtaskState
from tidelog.errors import CorruptObjectError
from tidelog.ids import SeqNo
from tidelog.spark.source.job.state import StoredRows, chosen
from tidelog.spark.source.parts import (
    ReadPart,
    ReadRequest,
    ReadSession,
    constants,
    from_arrays,
    where,
)
from tidelog.storage import object_names
from tidelog.storage.port import ObjectStore

_BATCH_BYTES: Final = 2 << 20
"""Raw bytes of neighbouring blocks that become one batch."""


async def plan(store: ObjectStore, request: ReadRequest) -> Sequence[ReadPart]:
    """A part per object that holds changes wanted; raises as `chosen` and `ranges_of`."""
    by_object: dict[str, list[ChangeRange]] = defaultdict(list)
    for checkpoint in await chosen(store, request):
        for operator, state in checkpoint.subtasks():
            if not request.options.filter.accepts(operator=operator.id, subtask=state.index):
                continue
            # All of the log is looked at, so that a missing part is noticed whatever is wanted.
            for change_range in ranges_of(checkpoint, operator, state):
                if _is_wanted(change_range, request):
                    by_object[change_range.object].append(change_range)
    return [LogPart(tuple(by_object[name])) for name in sorted(by_object)]


@dataclass(frozen=True, slots=True)
class ChangeRange:
    """Changes [start, end) of one subtask, in one log range or one inline block."""

    operator: str
    subtask: int
    states: tuple[StateInfo, ...]
    start: SeqNo
    end: SeqNo
    object: str
    log: LogRange | bytes
    slot: int
    """The slot that rows give as their own."""


def ranges_of(
    checkpoint: Checkpoint, operator: OperatorState, state: SubtaskState
) -> Iterator[ChangeRange]:
    """The changes of a subtask since its materialization, by where they lie: each once, in order.

    Raises CorruptObjectError when the log of the checkpoint does not have all of them.
    """
    name = object_names.checkpoint(checkpoint.slot)
    what = f"object {name}: log of {operator.id}-{state.index}"
    seqno = state.upto
    pieces: list[tuple[SeqNo, SeqNo, LogRange | bytes]] = [(r.first, r.end, r) for r in state.log]
    for data in state.inline:
        block = open_block(data, 0, what)
        pieces.append((block.first, block.end, data))
    for first, last, log in sorted(pieces, key=lambda piece: piece[:2]):
        if last <= seqno:
            continue
        if first > seqno or seqno >= state.seqno:
            break
        end = min(last, state.seqno)
        stored_in = log.segment if isinstance(log, LogRange) else name
        yield ChangeRange(
            operator.id, state.index, operator.states, seqno, end, stored_in, log, checkpoint.slot
        )
        seqno = end
    if seqno < state.seqno:
        raise CorruptObjectError(
            what,
            expected=f"changes {state.upto} to {state.seqno - 1}",
            found=f"none from {seqno} on",
            action="run `tidelog inspect URL`; read an older checkpoint",
        )


def _is_wanted(change_range: ChangeRange, request: ReadRequest) -> bool:
    log, row_filter = change_range.log, request.options.filter
    if not any(row_filter.of("seqno").within(change_range.start, change_range.end)):
        return False
    return isinstance(log, bytes) or any(
        row_filter.of("key_group").within(log.key_group_min, log.key_group_max + 1)
    )


@dataclass(frozen=True, slots=True)
class LogPart:
    """Ranges of changes in one object."""

    ranges: tuple[ChangeRange, ...]

    @property
    def size(self) -> int:
        """Bytes of the log ranges that are read; inline blocks have been."""
        return sum(log_range.length for log_range in self._stored())

    def read(self, request: ReadRequest, session: ReadSession) -> Iterator[pa.RecordBatch]:
        log_ranges = self._stored()
        reader = SegmentReader(session.store)
        # Together: neighbours in a segment share a request.
        read = session.run(reader.read_ranges(log_ranges))
        blocks = dict(zip(log_ranges, read, strict=True))
        for change_range in self.ranges:
            log = change_range.log
            range_blocks = (
                [open_block(log, 0, change_range.object)] if isinstance(log, bytes) else blocks[log]
            )
            matching = (
                block for block in range_blocks if _has_wanted(request, change_range, block)
            )
            for run in _runs(matching):
                yield from _changes(request, change_range, run)

    def _stored(self) -> list[LogRange]:
        logs = (change_range.log for change_range in self.ranges)
        return list(dict.fromkeys(log for log in logs if isinstance(log, LogRange)))


def _has_wanted(request: ReadRequest, change_range: ChangeRange, block: Block) -> bool:
    if block.kind != BlockKind.CHANGES:
        return False
    row_filter = request.options.filter
    start, end = max(change_range.start, block.first), min(change_range.end, block.end)
    groups = row_filter.of("key_group").within(block.key_group_min, block.key_group_max + 1)
    return any(row_filter.of("seqno").within(start, end)) and any(groups)


def _runs(blocks: Iterable[Block]) -> Iterator[list[Block]]:
    """Blocks that go on from one another, together up to `_BATCH_BYTES`."""
    run: list[Block] = []
    size = 0
    for block in blocks:
        if run and (block.first != run[-1].end or size + block.raw_bytes > _BATCH_BYTES):
            yield run
            run, size = [], 0
        run.append(block)
        size += block.raw_bytes
    if run:
        yield run


def _changes(
    request: ReadRequest, change_range: ChangeRange, run: Sequence[Block]
) -> Iterator[pa.RecordBatch]:
    """The wanted changes of a run of blocks that lie in the range."""
    begin = run[0].first
    start, end = max(change_range.start, begin), min(change_range.end, run[-1].end)
    columns, row_filter = record_batch(run), request.options.filter
    for first, last in row_filter.of("seqno").within(start, end):
        part = columns.slice(first - begin, last - first)
        batch = _batch(request, change_range, part, first)
        if row_filter.narrows("key_group"):
            batch = where(batch, part.column("key_group"), row_filter.of("key_group"))
        if batch.num_rows:
            yield batch


def _batch(
    request: ReadRequest, change_range: ChangeRange, part: pa.RecordBatch, first: int
) -> pa.RecordBatch:
    """Columns of a block as columns of the view; `first` is the number of the first change."""
    count = part.num_rows
    rows = StoredRows(part.column("key"), part.column("value"), change_range.states)
    arrays = {
        **constants(
            count,
            checkpoint=change_range.slot,
            operator=change_range.operator,
            subtask=change_range.subtask,
            object=change_range.object,
        ),
        "seqno": lambda: pa.array(np.arange(first, first + count)),
        "op": lambda: pc.if_else(pc.equal(part.column("op"), OP_PUT), "put", "delete"),
        **rows.arrays(part.column("key_group"), part.column("state_id")),
    }
    return from_arrays(request.columns, count, arrays)
