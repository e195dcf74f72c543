"""`tidelog estimate`: what a job will store, ask for and cost, before it runs."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import click

from tidelog.cli.estimate.job import DescribedJob, estimate_fields, on_a_job
from tidelog.cli.estimate.prices import Column, show_table
from tidelog.cli.options import option
from tidelog.cli.output import Output
from tidelog.cli.store.options import EXIT_OK
from tidelog.cli.values import amount, duration, duration_text, short, size, span
from tidelog.cost.model.embedded import estimate_changelog, estimate_incremental
from tidelog.cost.model.estimate import Strategy
from tidelog.cost.model.spark import SparkOptions, estimate_spark
from tidelog.materialize.config import MaterializeConfig
from tidelog.options.units import show_duration

_COLUMNS: Final[Sequence[Column]] = (
    ("a day", "strategy", str),
    ("objects", "objects_per_day", short),
    ("PUT", "puts_per_day", short),
    ("LIST", "lists_per_day", short),
    ("GET", "gets_per_day", short),
    ("uploaded", "uploaded_bytes_per_day", lambda count: size(int(count))),
    ("stored", "stored_bytes", lambda count: size(int(count))),
    ("checkpoint", "checkpoint_s", span),
    ("restore", "restore_s", span),
)


@click.command("estimate")
@on_a_job
@option(
    "--materialize-interval",
    type=duration,
    default=show_duration(MaterializeConfig().interval),
    help="How often each table is uploaded.",
)
@option(
    "--replay-target",
    type=duration,
    default=show_duration(MaterializeConfig().replay_target),
    help="A table is uploaded early when a restart would replay its log for longer.",
)
@click.option(
    "--strategy",
    "strategies",
    type=click.Choice([strategy.value for strategy in Strategy]),
    multiple=True,
    help="What to compare; may be repeated.  [default: all]",
)
@option(
    "--stores",
    type=click.IntRange(min=1),
    default=1,
    help="Spark: state stores per partition; 4 for a stream-stream join.",
)
@click.option(
    "--rename", is_flag=True, help="Spark: files are written by rename, a copy on object stores."
)
def command(
    output: Output,
    job: DescribedJob,
    materialize_interval: float,
    replay_target: float,
    strategies: tuple[str, ...],
    stores: int,
    rename: bool,
) -> int:
    """Estimate storage, requests, traffic, restore time and monthly cost; needs no store.

    Compares ways to make the same state durable: tidelog with and without changelog, Spark's own
    state stores, and Spark with tidelog's plug-in. What the figures mean, and how good they are:
    docs/guides/estimate.md.
    """
    settings = job.settings.with_materialization(materialize_interval, replay_target)
    job = replace(job, settings=settings)
    spark = SparkOptions(stores, rename)
    found = [_estimated(Strategy(name), job, spark) for name in strategies or Strategy]
    if output.as_json:
        fields = job.fields()
        fields["settings"] |= {
            "materialize_interval_s": materialize_interval,
            "replay_target_s": replay_target,
            "stores": stores,
            "rename": rename,
        }
        output.document(fields | {"strategies": found})
    else:
        _show(output, job, found)
        own = [f"{each['strategy']}: {warning}" for each in found for warning in each["warnings"]]
        job.prices.show(output, *own)
    return EXIT_OK


def _estimated(strategy: Strategy, job: DescribedJob, spark: SparkOptions) -> dict[str, Any]:
    """One strategy with its bills."""
    if strategy is Strategy.CHANGELOG:
        found = estimate_changelog(job.workload, job.settings)
    elif strategy is Strategy.INCREMENTAL:
        found = estimate_incremental(job.workload, job.settings)
    else:
        found = estimate_spark(strategy, job.workload, job.settings, spark)
    return estimate_fields(found) | {"bills": job.prices.bills(found.usage, egress=job.egress)}


def _show(output: Output, job: DescribedJob, found: Sequence[dict[str, Any]]) -> None:
    show_table(output, _COLUMNS, found)
    output.line()
    output.table(
        ["cost a month", "currency", *(each["strategy"] for each in found)],
        [
            [book.provider, book.currency, *(amount(each["bills"][at]["total"]) for each in found)]
            for at, book in enumerate(job.prices.books)
        ],
    )
    for each in found:
        if each["log"] is not None:
            output.line()
            output.line(_log(each["log"], each["materialize_s"]))
    if any(not each["replay_counted"] for each in found):
        output.line()
        output.line("restore: when the log is longest; of Spark requests and bytes, without replay")


def _log(log: dict[str, float], materialize_s: float) -> str:
    return (
        f"log: {short(log['changes_per_s'])} changes/s (one per {log['combine']:.1f} updates), "
        f"{size(int(log['bytes_per_s']))}/s, {size(int(log['peak_bytes']))} stored at most "
        f"(rule of thumb: {size(int(log['rule_of_thumb_bytes']))}); tables uploaded every "
        f"{duration_text(round(materialize_s, 1))}"
    )
