"""`tidelog overhead`: what the changelog of a job costs, measured, and what formulas predict."""

from collections.abc import Mapping
from pathlib import Path

import click

from tidelog.cli.estimate.overhead_output import report_fields, show_report
from tidelog.cli.estimate.prices import Prices, on_prices
from tidelog.cli.spark.engine import on_engine, open_engine
from tidelog.cli.store.options import EXIT_OK, EXIT_PROBLEM, StoreCommand, on_store
from tidelog.cli.values import duration
from tidelog.cost.measured.analysis import measure
from tidelog.cost.measured.windows import Span
from tidelog.errors import ConfigError


@click.command("overhead")
@on_store
@on_engine
@click.option(
    "--window",
    type=duration,
    metavar="SIZE",
    help="Size of windows that a processor keeps by itself.  [default: what the states say]",
)
@click.option("--slide", type=duration, metavar="SLIDE", help="Their slide.  [default: SIZE]")
@on_prices
async def command(
    invocation: StoreCommand,
    engine: str | None,
    master: str | None,
    conf: Mapping[str, str],
    window: float | None,
    slide: float | None,
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
    windows = _span(window, slide)
    with (
        open_engine(invocation, "tidelog overhead", engine, master, conf) as chosen,
        invocation.output.progress("reading the log") as progress,
    ):
        report = await measure(invocation.store, chosen, windows, progress)
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


def _span(window: float | None, slide: float | None) -> Span | None:
    """The windows that options describe; raises ConfigError for a slide that cannot be."""
    if window is None and slide is None:
        return None
    if window is None or (slide is not None and slide > window):
        raise ConfigError(
            "--window, --slide",
            expected="a size, and a slide that is not larger",
            found="no size" if window is None else f"size {window:g} s, slide {slide:g} s",
            action="correct them",
        )
    size_ms = round(window * 1000)
    return Span(size_ms, size_ms if slide is None else round(slide * 1000))
