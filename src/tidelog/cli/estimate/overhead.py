"""`tidelog overhead`: what the changelog of a job costs, measured, and what formulas predict."""

from collections.abc import Mapping
from pathlib import Path

import click

from tidelog.cli.estimate.overhead_output import report_fields, show_report
from tidelog.cli.estimate.prices import Prices, on_prices
from tidelog.cli.spark.engine import on_engine, open_engine
from tidelog.cli.store.options import EXIT_OK, EXIT_PROBLEM, StoreCommand, on_store
from tidelog.cost.measured.analysis import measure


@click.command("overhead")
@on_store
@on_engine
@on_prices
async def command(
    invocation: StoreCommand,
    engine: str | None,
    master: str | None,
    conf: Mapping[str, str],
    providers: tuple[str, ...],
    price_files: tuple[Path, ...],
) -> int:
    """Measure what the changelog of the job at URL costs; nothing is written.

    From the retained checkpoints: change rate, bytes per change, materialization intervals, the
    log at its fullest and what `rate x bytes x interval` and the rule for windows predict; space
    amplification, and what log and manifests cost a month. It takes checkpoints that span three
    materialization intervals (`tidelog run --retain`); exits with 1 when there are fewer.
    """
    prices = Prices.chosen(providers, price_files)
    with (
        open_engine(invocation, "tidelog overhead", engine, master, conf) as chosen,
        invocation.output.progress("reading the log") as progress,
    ):
        report = await measure(invocation.store, chosen, progress)
    usage, output = report.usage, invocation.output
    fields = report_fields(report, [] if usage is None else prices.bills(usage))
    if output.as_json:
        output.document(fields | prices.fields())
        return EXIT_OK if report.compared else EXIT_PROBLEM
    show_report(output, fields)
    if usage is not None:
        prices.show(output)
    for note in report.notes:
        output.line(f"note: {note}")
    return EXIT_OK if report.compared else EXIT_PROBLEM
