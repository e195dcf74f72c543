"""`tidelog spark checkpoints`, `export`: the stored checkpoint of a query."""

from collections.abc import Iterator
from functools import partial

import click

from tidelog.cli.exit_codes import EXIT_OK, EXIT_PROBLEM
from tidelog.cli.output import Rows, fields_of
from tidelog.cli.store.options import StoreCommand, on_store
from tidelog.cli.values import age, size
from tidelog.errors import error_fields
from tidelog.spark.checkpoint.checkpoint import read_checkpoint, require_checkpoint, store_url
from tidelog.spark.checkpoint.export import ExportReport, export
from tidelog.spark.checkpoint.inspection import (
    BatchSummary,
    LogSummary,
    summarize_batches,
    summarize_log,
)
from tidelog.spark.checkpoint.liveness import assess
from tidelog.spark.checkpoint.locate import locate
from tidelog.spark.plugin.settings import CHANGELOG, FILE_MANAGER, FORMAT, PLUGINS, PROVIDER

on_checkpoint = partial(on_store, location=store_url, encrypted=False)
"""As `on_store`, for the checkpoint at a URL as Spark writes it."""


@click.command("checkpoints")
@on_checkpoint
async def checkpoints_command(invocation: StoreCommand) -> int:
    """Show the batches and the log of the checkpoint at URL; nothing is written.

    Works on checkpoints of Spark alone, too. Exits with 1 when a commit or a part of the index
    cannot be read.
    """
    output, store = invocation.output, invocation.store
    with output.progress("reading the checkpoint") as progress:
        checkpoint = await read_checkpoint(store, progress)
    require_checkpoint(checkpoint)
    batches = await summarize_batches(store, checkpoint)
    log = summarize_log(checkpoint, assess(checkpoint, checkpoint.indexed))
    now_ms, damaged = invocation.effects.clock.now_ms(), sorted(checkpoint.damaged.items())

    def age_of(batch: BatchSummary) -> str | None:
        return None if batch.started_ms is None else age(now_ms - batch.started_ms)

    output.show(
        {
            "url": invocation.url,
            "batches": batches,
            "log": log,
            "damaged": [{"object": name, "error": error_fields(e)} for name, e in damaged],
        },
        Rows(
            batches,
            *("batch", ("age", age_of), "operators", "partitions", "changelogs", "files"),
            *("log_bytes", "segments", "snapshots"),
        ),
        "",
        *_log_lines(log),
        *(f"\n{error}" for _, error in damaged),
    )
    return EXIT_PROBLEM if damaged else EXIT_OK


def _log_lines(log: LogSummary) -> Iterator[str]:
    yield (
        f"log: {log.segments} segments of {size(log.bytes)}, {log.roll_ups} roll-ups; live "
        f"{log.live_changelogs} changelogs of {size(log.live_bytes)}, expired "
        f"{log.expired_changelogs}"
    )
    if log.orphan_segments:
        yield (
            f"{log.orphan_segments} segments of {size(log.orphan_bytes)} stand in no index: of a "
            "batch in flight, or garbage that the query's next start deletes"
        )


@click.command("export")
@on_checkpoint
@click.option("--dry-run", is_flag=True, help="Read and check everything, write nothing.")
@click.option(
    "--remove-log", is_flag=True, help="Afterwards remove the log; the export must be complete."
)
async def export_command(invocation: StoreCommand, dry_run: bool, remove_log: bool) -> int:
    """Write the live changelogs of the checkpoint at URL as files, so that Spark alone can go on.

    The query must be stopped. Every checksum is verified, a file that is there is never
    overwritten, and the command can be repeated. Without --remove-log the plug-in can still
    continue from the checkpoint, too.
    """
    output, store = invocation.output, invocation.store
    click.echo(
        "The query that writes this checkpoint must be stopped: whether it is cannot be seen "
        "from here.",
        err=True,
    )
    with output.progress("reading the checkpoint") as progress:
        checkpoint = await read_checkpoint(store, progress)
        require_checkpoint(checkpoint)
        located = await locate(store, checkpoint, all_footers=True, progress=progress)
    with output.progress("exporting") as progress:
        report = await export(
            *(store, checkpoint, located), remove_log=remove_log, dry_run=dry_run, progress=progress
        )
    document = {"url": invocation.url, "dry_run": dry_run, **fields_of(report)}
    output.show(document, *_exported(report, dry_run=dry_run, removed=remove_log))
    return EXIT_OK


def _exported(report: ExportReport, *, dry_run: bool, removed: bool) -> Iterator[str]:
    would = "would be " if dry_run else ""
    yield (
        f"{report.written} changelogs of {size(report.written_bytes)} {would}written, "
        f"{report.present} were there, {report.expired} expired ones left out"
    )
    if removed:
        yield (
            f"{report.stripped} index lines and {report.removed} objects of the log {would}removed"
        )
    if dry_run:
        yield "nothing was written; leave out --dry-run to do it"
    else:
        yield (
            f"Spark alone can go on: leave {PLUGINS} and {FILE_MANAGER} out, keep {PROVIDER}, "
            f"{CHANGELOG}=true and {FORMAT}=2"
        )
