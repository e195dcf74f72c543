"""View `changes` of a store: the log of a checkpoint, a part per segment.

Invariants: a part yields exactly the changes of its stretches, each once and in order within a
stretch; a block becomes Arrow columns without a loop over its changes.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tidelog.changelog.block import Block, BlockKind, open_block, record_batch
from tidelog.changelog.change import OP_PUT
from tidelog.changelog.reader import SegmentReader
from tidelog.changelog.segment import LogRange
from tidelog.spark.source import frames
from tidelog.spark.source.job.checkpoints import chosen
from tidelog.spark.source.job.coverage import Source, Stretch, stretches
from tidelog.spark.source.job.rows import StoredRows
from tidelog.spark.source.parts import Part, Request, Task
from tidelog.storage.port import ObjectStore

if TYPE_CHECKING:
    import pyarrow as pa


_BATCH_BYTES: Final = 2 << 20
"""Raw bytes of neighbouring blocks that become one batch."""


async def plan(store: ObjectStore, request: Request) -> Sequence[Part]:
    """A part per object that holds changes wanted; raises as `chosen` and `stretches`."""
    found: list[Stretch] = []
    for checkpoint in await chosen(store, request):
        for operator, state in checkpoint.subtasks():
            if request.wanted.has(operator=operator.id, subtask=state.index):
                source = Source(checkpoint, operator, state)
                # All of it is looked at, so that a gap is noticed whatever is wanted.
                found += stretches(source, source.upto, state.seqno, checkpoint.slot)
    return parts_of(found, request)


def parts_of(found: Iterable[Stretch], request: Request) -> list[Part]:
    """The stretches that have something wanted, by the object they lie in."""
    by_object: dict[str, list[Stretch]] = defaultdict(list)
    for stretch in found:
        if _is_wanted(stretch, request):
            by_object[stretch.object].append(stretch)
    return [LogPart(tuple(by_object[name])) for name in sorted(by_object)]


def _is_wanted(stretch: Stretch, request: Request) -> bool:
    wanted = request.wanted
    if not any(wanted.of("seqno").within(stretch.start, stretch.end)):
        return False
    if isinstance(stretch.log, bytes):
        return True
    groups = wanted.of("key_group").within(stretch.log.key_group_min, stretch.log.key_group_max + 1)
    return any(groups)


@dataclass(frozen=True, slots=True)
class LogPart:
    """Stretches of one object."""

    stretches: tuple[Stretch, ...]

    @property
    def size(self) -> int:
        """Bytes of the log ranges that are read; inline blocks have been."""
        return sum(log_range.length for log_range in self._ranges())

    def read(self, task: Task) -> Iterator["pa.RecordBatch"]:
        """The changes wanted, in batches of neighbouring blocks."""
        ranges = self._ranges()
        reader = SegmentReader(task.session.store, cache_bytes=0)
        # Together: neighbours in a segment share a request.
        read = task.session.run(reader.read_ranges(ranges))
        blocks = dict(zip(ranges, read, strict=True))
        for stretch in self.stretches:
            log = stretch.log
            held = [open_block(log, 0, stretch.object)] if isinstance(log, bytes) else blocks[log]
            wanted = (block for block in held if _has_wanted(task.request, stretch, block))
            for run in _runs(wanted):
                yield from _changes(task.request, stretch, run)

    def _ranges(self) -> list[LogRange]:
        logs = (stretch.log for stretch in self.stretches)
        return list(dict.fromkeys(log for log in logs if isinstance(log, LogRange)))


def _has_wanted(request: Request, stretch: Stretch, block: Block) -> bool:
    start, end = max(stretch.start, block.first), min(stretch.end, block.end)
    if block.kind != BlockKind.CHANGES or start >= end:
        return False
    groups = request.wanted.of("key_group").within(block.key_group_min, block.key_group_max + 1)
    return any(request.wanted.of("seqno").within(start, end)) and any(groups)


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
    request: Request, stretch: Stretch, run: Sequence[Block]
) -> Iterator["pa.RecordBatch"]:
    """The wanted changes of a run of blocks that lie in the stretch."""
    begin = run[0].first
    start, end = max(stretch.start, begin), min(stretch.end, run[-1].end)
    columns = record_batch(run)
    for first, last in request.wanted.of("seqno").within(start, end):
        part = columns.slice(first - begin, last - first)
        batch = _batch(request, stretch, part, first)
        if request.wanted.narrows("key_group"):
            key_groups = part.column("key_group")
            batch = frames.where(batch, key_groups, request.wanted.of("key_group"))
        if batch.num_rows:
            yield batch


def _batch(
    request: Request, stretch: Stretch, part: "pa.RecordBatch", first: int
) -> "pa.RecordBatch":
    """Columns of a block as columns of the view; `first` is the number of the first change."""
    import numpy as np  # noqa: PLC0415
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    count = part.num_rows
    stored = StoredRows(part.column("key"), part.column("value"), stretch.states)
    arrays = {
        "slot": frames.constant(stretch.slot, count),
        "operator": frames.constant(stretch.operator, count),
        "subtask": frames.constant(stretch.subtask, count),
        "seqno": lambda: pa.array(np.arange(first, first + count)),
        "op": lambda: pc.if_else(pc.equal(part.column("op"), OP_PUT), "put", "delete"),
        "object": frames.constant(stretch.object, count),
        **stored.arrays(part.column("key_group"), part.column("state_id")),
    }
    return frames.from_arrays(request.columns, count, arrays)
