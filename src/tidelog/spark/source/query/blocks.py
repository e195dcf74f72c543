"""View `blocks` of a query: the blocks in its segments, a part per segment.

Invariants: a footer is used only after its checksum has passed; a segment that a running query
deletes meanwhile has no rows.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial

from tidelog.changelog.block import HEADER
from tidelog.spark.checkpoint.checkpoint import SEGMENTS, Checkpoint, read_checkpoint
from tidelog.spark.checkpoint.inspection import summarize_batches
from tidelog.spark.format.segment import FooterEntry, read_footer_at
from tidelog.spark.source.frames import Row
from tidelog.spark.source.parts import Listing, Part, Request
from tidelog.storage.port import ObjectStore


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
    committed = _committed(checkpoint, started)
    return [
        Listing(partial(_rows, SEGMENTS + name, size, committed[name]), size, may_vanish=True)
        for name, size in sorted(checkpoint.segments.items())
    ]


_Batches = Mapping[int, tuple[int, int | None]]
"""Maps the offset of a committed block in its segment to the number of its batch and the start of
that batch in milliseconds since the epoch, None where it is not known."""


def _committed(checkpoint: Checkpoint, started: Mapping[int, int | None]) -> Mapping[str, _Batches]:
    """What the index names, by segment."""
    batches: dict[str, dict[int, tuple[int, int | None]]] = defaultdict(dict)
    for name, entry in checkpoint.indexed.items():
        batch = name.version - 1
        for piece in entry.pieces:
            batches[piece.segment][piece.offset] = batch, started.get(batch)
    return batches


async def _rows(segment: str, size: int, committed: _Batches, store: ObjectStore) -> list[Row]:
    entries = await read_footer_at(store, segment, size)
    return [_row(segment, entry, *committed.get(entry.offset, (None, None))) for entry in entries]


def _row(segment: str, entry: FooterEntry, batch: int | None, started_ms: int | None) -> Row:
    return {
        "object": segment,
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
