"""`tidelog overhead`: what the changelog of a job costs, measured, and what formulas predict."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import click

from tidelog.cli.estimate.overhead_output import report_fields, show_report
from tidelog.cli.estimate.prices import Prices, on_prices
from tidelog.cli.spark.options import on_spark
from tidelog.cli.store.options import EXIT_OK, EXIT_PROBLEM, StoreCommand, on_store
from tidelog.cli.values import duration
from tidelog.cost.measured.analysis import Question, measure
from tidelog.cost.measured.combining import read_combine
from tidelog.cost.measured.engine import Engine
from tidelog.cost.measured.local import LocalEngine
from tidelog.cost.measured.spark import SparkEngine
from tidelog.cost.measured.windows import Span
from tidelog.errors import ConfigError
from tidelog.spark.plugin.toolchain import find_java, find_spark

_MEMORY: Final = "memory://"
_NAMED: Final = {"spark.app.name": "tidelog overhead"}


@click.command("overhead")
@on_store
@click.option(
    "--engine",
    type=click.Choice(["spark", "local"]),
    help="A Spark job, or plain Python on this machine.  [default: spark where it is installed]",
)
@on_spark
@click.option(
    "--status",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Output of `tidelog run --json`, for the combine factor since the start of the job.",
)
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
    status: Path | None,
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
    question = Question(read_combine(status) if status else None, _span(window, slide))
    with (
        _engine(invocation, engine, master, conf) as chosen,
        invocation.output.progress("reading the log") as progress,
    ):
        report = await measure(invocation.store, chosen, question, progress)
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


@contextmanager
def _engine(
    invocation: StoreCommand, name: str | None, master: str | None, conf: Mapping[str, str]
) -> Iterator[Engine]:
    """The engine that was asked for, or the one there is; raises ConfigError."""
    local = invocation.store.url.startswith(_MEMORY)
    if name == "spark" and local:
        raise ConfigError(
            f"store {invocation.store.url}",
            expected="a store that other processes can open",
            found="one in the memory of this process",
            action="use --engine local",
        )
    if name == "local" or (name is None and (local or not _has_spark())):
        if master is not None or conf:
            raise ConfigError(
                "--master, --conf",
                expected="--engine spark with them",
                found="the local engine",
                action="leave them out, or install Spark: pip install 'tidelog[spark]'",
            )
        yield LocalEngine(invocation.store)
        return
    # Heavy: only Spark's side needs it.
    from tidelog.spark.session import session  # noqa: PLC0415

    with session(master, {**_NAMED, **conf}) as spark:
        yield SparkEngine(spark, invocation.effects, invocation.store.url, invocation.access)


def _has_spark() -> bool:
    try:
        find_spark()
        find_java()
    except ConfigError:
        return False
    return all(find_spec(module) is not None for module in ("pyspark", "pyarrow"))
