"""View `blocks` of a query: the blocks in its segments, a part per segment.

Invariants: a footer is used only after its checksum has passed; a segment that a running query
deletes meanwhile has no rows.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidelog.changelog.block import HEADER
from tidelog.errors import ObjectNotFoundError
from tidelog.spark.checkpoint.checkpoint import SEGMENTS, Checkpoint, indexed
from tidelog.spark.checkpoint.reading import read_checkpoint
from tidelog.spark.checkpoint.summary import summarize_batches
from tidelog.spark.format.segment import FooterEntry, read_footer_at
from tidelog.spark.source import frames
from tidelog.spark.source.parts import Part, Request, Task
from tidelog.storage.port import ObjectStore

if TYPE_CHECKING:
    import pyarrow as pa


async def plan(store: ObjectStore, request: Request) -> Sequence[Part]:
    """A part per segment.

    Raises the error of a commit or index that is damaged, for what it refers to is unknown, and
    what the store raises.
    """
    checkpoint = await read_checkpoint(store)
    for error in checkpoint.damaged.values():
        raise error
    started = {}
    if request.asks_for("time"):
        summaries = await summarize_batches(store, checkpoint)
        started = {summary.batch: summary.started_ms for summary in summaries}
    committed = _committed(checkpoint)
    return [
        SegmentPart(name, size, {at: (b, started.get(b)) for at, b in committed[name].items()})
        for name, size in sorted(checkpoint.segments.items())
    ]


def _committed(checkpoint: Checkpoint) -> Mapping[str, Mapping[int, int]]:
    """The batch of every block that the index names, by segment and offset."""
    batches: dict[str, dict[int, int]] = defaultdict(dict)
    for name, entry in indexed(checkpoint).items():
        for piece in entry.pieces:
            batches[piece.segment][piece.offset] = name.version - 1
    return batches


@dataclass(frozen=True, slots=True)
class SegmentPart:
    """One segment of `size` bytes; of its committed blocks, by offset, batch and start in ms."""

    segment: str
    size: int
    committed: Mapping[int, tuple[int, int | None]]

    def read(self, task: Task) -> Iterator["pa.RecordBatch"]:
        """A row per block."""
        where = SEGMENTS + self.segment
        try:
            entries = task.session.run(read_footer_at(task.session.store, where, self.size))
        except ObjectNotFoundError:
            return
        if kept := task.request.kept(self._row(where, entry) for entry in entries):
            yield frames.from_rows(task.request.columns, kept)

    def _row(self, where: str, entry: FooterEntry) -> dict[str, Any]:
        batch, started_ms = self.committed.get(entry.offset, (None, None))
        return {
            "object": where,
            "offset": entry.offset,
            "operator": entry.name.operator_id,
            "subtask": entry.name.partition,
            "kind": "spark-changelog",
            "first_seqno": entry.name.version,
            "end_seqno": entry.name.version + 1,
            "changes": 1,
            "codec": "none",
            "raw_bytes": entry.length - HEADER.size,
            "stored_bytes": entry.length,
            "referenced_by": [] if batch is None else [batch],
            "time": None if started_ms is None else started_ms * 1000,
            "id": entry.name.id,
            "piece": entry.piece,
            "pieces": entry.pieces,
        }
