"""`tidelog spark checkpoints`: what a query's checkpoint holds."""

import click

from tidelog.cli.output import Output, error_fields
from tidelog.cli.spark.options import on_checkpoint
from tidelog.cli.store.options import EXIT_OK, EXIT_PROBLEM, StoreCommand
from tidelog.cli.values import age, size
from tidelog.spark.checkpoint.checkpoint import Checkpoint, indexed, require_checkpoint
from tidelog.spark.checkpoint.liveness import assess
from tidelog.spark.checkpoint.reading import read_checkpoint
from tidelog.spark.checkpoint.summary import (
    BatchSummary,
    LogSummary,
    summarize_batches,
    summarize_log,
)


@click.command("checkpoints")
@on_checkpoint
async def command(invocation: StoreCommand) -> int:
    """Show the batches and the log of the checkpoint at URL; nothing is written.

    Works on checkpoints of Spark alone, too. Exits with 1 when a commit or a part of the index
    cannot be read.
    """
    output, store = invocation.output, invocation.store
    with output.progress("reading the checkpoint") as progress:
        checkpoint = await read_checkpoint(store, progress)
    require_checkpoint(checkpoint)
    batches = await summarize_batches(store, checkpoint)
    log = summarize_log(checkpoint, assess(checkpoint, indexed(checkpoint)))
    if output.as_json:
        damaged = [
            {"object": name, "error": error_fields(error)}
            for name, error in sorted(checkpoint.damaged.items())
        ]
        output.document({"url": invocation.url, "batches": batches, "log": log, "damaged": damaged})
    else:
        _print(output, batches, log, invocation.effects.clock.now_ms())
        _print_damage(output, checkpoint)
    return EXIT_PROBLEM if checkpoint.damaged else EXIT_OK


_COLUMNS = [
    *("batch", "age", "operators", "partitions", "changelogs", "files", "log", "segments"),
    "snapshots",
]


def _print(output: Output, batches: list[BatchSummary], log: LogSummary, now_ms: int) -> None:
    output.table(_COLUMNS, [_cells(batch, now_ms) for batch in batches])
    output.line()
    output.line(
        f"log: {log.segments} segments of {size(log.bytes)}, {log.roll_ups} roll-ups; live "
        f"{log.live_changelogs} changelogs of {size(log.live_bytes)}, expired "
        f"{log.expired_changelogs}"
    )
    if log.orphan_segments:
        output.line(
            f"{log.orphan_segments} segments of {size(log.orphan_bytes)} stand in no index: of a "
            "batch in flight, or garbage that the query's next start sweeps"
        )


def _cells(batch: BatchSummary, now_ms: int) -> list[str | int | None]:
    return [
        batch.batch,
        None if batch.started_ms is None else age(now_ms - batch.started_ms),
        batch.operators,
        batch.partitions,
        batch.changelogs,
        batch.files,
        size(batch.log_bytes),
        batch.segments,
        batch.snapshots,
    ]


def _print_damage(output: Output, checkpoint: Checkpoint) -> None:
    for _, error in sorted(checkpoint.damaged.items()):
        output.line()
        output.line(str(error))
