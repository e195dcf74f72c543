"""`tidelog spark export`: back to a checkpoint of Spark alone."""

import click

from tidelog.cli.output import Output, fields_of
from tidelog.cli.spark.options import STOP_THE_QUERY, on_checkpoint
from tidelog.cli.store.options import EXIT_OK, StoreCommand
from tidelog.cli.values import size
from tidelog.spark.checkpoint.checkpoint import require_checkpoint
from tidelog.spark.checkpoint.export import (
    ExportReport,
    export_changelogs,
    refuse_unreadable_segments,
    remove_log,
)
from tidelog.spark.checkpoint.locate import locate
from tidelog.spark.checkpoint.reading import read_checkpoint
from tidelog.spark.plugin.settings import CHANGELOG, FILE_MANAGER, FORMAT, PLUGINS, PROVIDER


@click.command("export")
@on_checkpoint
@click.option("--dry-run", is_flag=True, help="Read and check everything, write nothing.")
@click.option(
    "--remove-log",
    "remove_log_",
    is_flag=True,
    help="Afterwards remove the log; the export must be complete.",
)
async def command(invocation: StoreCommand, dry_run: bool, remove_log_: bool) -> int:
    """Write the live changelogs of the checkpoint at URL as files, so that Spark alone can go on.

    The query must be stopped. Every checksum is verified, a file that is there is never
    overwritten, and the command can be repeated. Without --remove-log the plug-in can still
    continue from the checkpoint, too.
    """
    output, store = invocation.output, invocation.store
    click.echo(STOP_THE_QUERY, err=True)
    with output.progress("reading the checkpoint") as progress:
        checkpoint = await read_checkpoint(store, progress)
        require_checkpoint(checkpoint)
        located = await locate(store, checkpoint, all_footers=True, progress=progress)
    if remove_log_:
        refuse_unreadable_segments(located.footers)
    with output.progress("exporting") as progress:
        report = await export_changelogs(
            store, checkpoint, located.assessment, dry_run=dry_run, progress=progress
        )
    if remove_log_:
        await remove_log(store, checkpoint, report, dry_run=dry_run)
    if output.as_json:
        output.document({"url": invocation.url, "dry_run": dry_run, **fields_of(report)})
    else:
        _print(output, report, dry_run=dry_run, removed=remove_log_)
    return EXIT_OK


def _print(output: Output, report: ExportReport, *, dry_run: bool, removed: bool) -> None:
    would = "would be " if dry_run else ""
    output.line(
        f"{report.written} changelogs of {size(report.written_bytes)} {would}written, "
        f"{report.present} were there, {report.expired} expired ones left out"
    )
    if removed:
        output.line(
            f"{report.stripped} index lines and {report.removed} objects of the log {would}removed"
        )
    if dry_run:
        output.line("nothing was written; leave out --dry-run to do it")
    else:
        output.line(
            f"Spark alone can go on: leave {PLUGINS} and {FILE_MANAGER} out, keep {PROVIDER}, "
            f"{CHANGELOG}=true and {FORMAT}=2"
        )
