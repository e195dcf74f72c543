"""View `checkpoints` of a query: its batches.

Invariant: a commit or an index that cannot be read is said in `error`, and hides no other batch.
"""

from collections.abc import Sequence

from tidelog.errors import TidelogError
from tidelog.spark.checkpoint.checkpoint import COMMITS, Checkpoint, read_checkpoint
from tidelog.spark.checkpoint.inspection import BatchSummary, summarize_batches
from tidelog.spark.source.frames import Row
from tidelog.spark.source.parts import Listing, Part, Request
from tidelog.storage.port import ObjectStore


async def plan(store: ObjectStore, request: Request) -> Sequence[Part]:
    """One part: a batch's figures stand in its commit, its offsets, and the index of others."""
    return [Listing(_rows)]


async def _rows(store: ObjectStore) -> list[Row]:
    """A row per committed batch, oldest first, and per commit that cannot be read."""
    checkpoint = await read_checkpoint(store)
    batches = [_row(checkpoint, each) for each in await summarize_batches(store, checkpoint)]
    unreadable = [
        {"slot": batch, "kind": "unreadable", "error": str(error)}
        for batch, error in damaged_commits(checkpoint).items()
    ]
    return [*batches, *unreadable]


def _row(checkpoint: Checkpoint, summary: BatchSummary) -> Row:
    started, error = summary.started_ms, checkpoint.damaged.get(f"{COMMITS}{summary.batch}")
    return {
        "slot": summary.batch,
        "kind": "checkpoint",
        "created": None if started is None else started * 1000,
        "operators": summary.operators,
        "subtasks": summary.partitions,
        "manifest_bytes": checkpoint.commits[summary.batch].size,
        "log_bytes": summary.log_bytes,
        "error": None if error is None else str(error),
    }


def damaged_commits(checkpoint: Checkpoint) -> dict[int, TidelogError]:
    """The batches whose commit cannot be read, and why."""
    batches = {name.removeprefix(COMMITS): name for name in checkpoint.damaged}
    return {
        int(batch): checkpoint.damaged[name]
        for batch, name in batches.items()
        if batch != name and int(batch) not in checkpoint.commits
    }
