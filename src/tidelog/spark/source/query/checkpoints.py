"""View `checkpoints` of a query: its batches.

Invariant: a commit or an index that cannot be read is said in `error`, and hides no other batch.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog.errors import TidelogError
from tidelog.spark.checkpoint.checkpoint import COMMITS, Checkpoint
from tidelog.spark.checkpoint.reading import read_checkpoint
from tidelog.spark.checkpoint.summary import BatchSummary, summarize_batches
from tidelog.spark.source import frames
from tidelog.spark.source.parts import Part, Request, Task
from tidelog.spark.source.query.log import damaged_commits
from tidelog.storage.port import ObjectStore

if TYPE_CHECKING:
    import pyarrow as pa


async def plan(store: ObjectStore, request: Request) -> Sequence[Part]:
    """One part: a batch's figures stand in its commit, its offsets, and the index of others."""
    return [BatchesPart()]


@dataclass(frozen=True, slots=True)
class BatchesPart:
    """All batches of a checkpoint."""

    size: int = 0

    def read(self, task: Task) -> Iterator["pa.RecordBatch"]:
        """A row per committed batch, oldest first, and per commit that cannot be read."""
        rows = task.session.run(_rows(task.session.store))
        yield frames.from_rows(task.request.columns, task.request.kept(rows))


async def _rows(store: ObjectStore) -> list[frames.Row]:
    checkpoint = await read_checkpoint(store)
    summaries = await summarize_batches(store, checkpoint)
    unreadable = [
        {"slot": batch, "kind": "unreadable", "error": str(error)}
        for batch, error in damaged_commits(checkpoint).items()
    ]
    return [*rows_of(checkpoint, summaries), *unreadable]


def rows_of(checkpoint: Checkpoint, summaries: Sequence[BatchSummary]) -> Iterator[frames.Row]:
    """A row per committed batch."""
    for summary in summaries:
        started = summary.started_ms
        yield {
            "slot": summary.batch,
            "kind": "checkpoint",
            "created": None if started is None else started * 1000,
            "operators": summary.operators,
            "subtasks": summary.partitions,
            "manifest_bytes": checkpoint.commits[summary.batch].size,
            "log_bytes": summary.log_bytes,
            "error": _text(checkpoint.damaged.get(f"{COMMITS}{summary.batch}")),
        }


def _text(error: TidelogError | None) -> str | None:
    return None if error is None else str(error)
