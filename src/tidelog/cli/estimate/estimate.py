"""`tidelog estimate`: what a job will store, ask for and cost, before it runs."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click

from tidelog.cli.estimate.description import Described, on_a_description
from tidelog.cli.estimate.fields import bill_fields, described_fields, estimate_fields
from tidelog.cli.estimate.prices import (
    price_warnings,
    print_price_warnings,
    print_prices,
    print_warnings,
    today,
)
from tidelog.cli.options import option
from tidelog.cli.output import Output
from tidelog.cli.store.options import EXIT_OK
from tidelog.cli.values import amount, duration, duration_text, short, size, span
from tidelog.cost.model.bill import Bill, bill
from tidelog.cost.model.estimate import Estimate, Strategy
from tidelog.cost.model.spark import SparkOptions
from tidelog.cost.model.strategies import estimate_all
from tidelog.cost.model.usage import DAY_S
from tidelog.materialize.config import MaterializeConfig
from tidelog.options.units import show_duration


@click.command("estimate")
@on_a_description
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
    described: Described,
    materialize_interval: float,
    replay_target: float,
    strategies: tuple[str, ...],
    stores: int,
    rename: bool,
) -> int:
    """Estimate storage, requests, traffic, restore time and monthly cost; needs no store.

    Compares ways to make the same state durable side by side: tidelog with and without changelog,
    Spark's own state stores, and Spark with tidelog's plug-in. What the figures mean, and how good
    they are: docs/guides/estimate.md.
    """
    settings = described.settings.with_materialization(materialize_interval, replay_target)
    described = replace(described, settings=settings)
    estimates = estimate_all(
        map(Strategy, strategies or Strategy),
        described.workload,
        settings,
        SparkOptions(stores, rename),
    )
    bills = [
        [bill(book, estimate.usage, egress=described.egress) for book in described.books]
        for estimate in estimates
    ]
    day = today()
    warnings = price_warnings(described.books, day)
    if output.as_json:
        fields = described_fields(described, day, warnings)
        fields["settings"] |= {
            "materialize_interval_s": materialize_interval,
            "replay_target_s": replay_target,
            "stores": stores,
            "rename": rename,
        }
        fields["strategies"] = _strategy_fields(estimates, bills)
        output.document(fields)
    else:
        _print(output, described, estimates, bills)
        own = [f"{e.strategy}: {warning}" for e in estimates for warning in e.warnings]
        print_warnings(output, own)
        print_price_warnings(output, warnings, day)
    return EXIT_OK


def _strategy_fields(
    estimates: Sequence[Estimate], bills: Sequence[Sequence[Bill]]
) -> list[dict[str, Any]]:
    return [
        estimate_fields(estimate) | {"bills": [bill_fields(one) for one in of]}
        for estimate, of in zip(estimates, bills, strict=True)
    ]


def _print(
    output: Output,
    described: Described,
    estimates: Sequence[Estimate],
    bills: Sequence[Sequence[Bill]],
) -> None:
    output.table(
        ["a day", "objects", "PUT", "LIST", "GET", "uploaded", "stored", "checkpoint", "restore"],
        [_usage_row(estimate) for estimate in estimates],
    )
    output.line()
    output.table(
        ["cost a month", "currency", *(estimate.strategy for estimate in estimates)],
        [
            [book.provider, book.currency, *(amount(of[at].total) for of in bills)]
            for at, book in enumerate(described.books)
        ],
    )
    for estimate in estimates:
        if estimate.log is not None:
            output.line()
            _print_log(output, estimate)
    if any(not estimate.replay_counted for estimate in estimates):
        output.line()
        output.line("restore: when the log is longest; of Spark requests and bytes, without replay")
    print_prices(output, described.books, notes=described.notes)


def _usage_row(estimate: Estimate) -> list[str]:
    usage = estimate.usage
    return [
        estimate.strategy,
        short(usage.objects_per_s * DAY_S),
        short(usage.puts_per_s * DAY_S),
        short(usage.reads.lists * DAY_S),
        short(usage.reads.gets * DAY_S),
        size(int(usage.uploaded_per_s * DAY_S)),
        size(int(usage.stored_bytes)),
        "-" if estimate.checkpoint_s is None else span(estimate.checkpoint_s),
        span(estimate.restore_s),
    ]


def _print_log(output: Output, estimate: Estimate) -> None:
    log = estimate.log
    assert log is not None and estimate.materialize_s is not None
    output.line(
        f"log: {short(log.changes_per_s)} changes/s (one per {log.combine:.1f} updates), "
        f"{size(int(log.bytes_per_s))}/s, {size(int(log.peak_bytes))} stored at most "
        f"(rule of thumb: {size(int(log.rule_of_thumb_bytes))}); tables uploaded every "
        f"{duration_text(round(estimate.materialize_s, 1))}"
    )
