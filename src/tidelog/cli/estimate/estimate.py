"""`tidelog estimate`: what a job will store, ask for and cost, before it runs.

Invariant: in JSON (docs/reference/cli-json.md) times are seconds, sizes bytes; rates are a day's.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import click

from tidelog.cli.estimate.described import DescribedJob, on_a_job
from tidelog.cli.estimate.prices import object_fields
from tidelog.cli.exit_codes import EXIT_OK
from tidelog.cli.options import option
from tidelog.cli.output import Column, Output, Rows, fields_of
from tidelog.cli.values import amount, duration, duration_text, short, size, span
from tidelog.cost.model.embedded import estimate_changelog, estimate_incremental
from tidelog.cost.model.usage import DAY_S, MONTH_S, Estimate
from tidelog.materialize.schedule import MaterializeConfig
from tidelog.options.units import show_duration


def estimate_fields(estimate: Estimate) -> dict[str, Any]:
    """One strategy as JSON, without its bills."""
    usage = estimate.usage
    return {
        **fields_of(estimate, "usage"),
        "puts_per_day": usage.puts_per_s * DAY_S,
        "lists_per_day": usage.reads.lists * DAY_S,
        "gets_per_day": usage.reads.gets * DAY_S,
        "deletes_per_day": usage.puts_per_s * DAY_S,
        "uploaded_bytes_per_day": usage.uploaded_per_s * DAY_S,
        "read_bytes_per_month": usage.reads.bytes * MONTH_S,
        "stored_bytes": usage.stored_bytes,
        "stored_objects": usage.stored_objects,
        "objects": object_fields(usage),
    }


_COLUMNS: Final[Sequence[Column]] = (
    ("a day", "strategy", str),
    ("PUT", "puts_per_day", short),
    ("LIST", "lists_per_day", short),
    ("GET", "gets_per_day", short),
    ("uploaded", "uploaded_bytes_per_day", lambda count: size(int(count))),
    ("stored", "stored_bytes", lambda count: size(int(count))),
    ("checkpoint", "checkpoint_s", span),
    ("first record", "first_record_s", span),
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
def command(
    output: Output, job: DescribedJob, materialize_interval: float, replay_target: float
) -> int:
    """Estimate storage, requests, traffic, restore time and monthly cost; needs no store.

    Compares two ways to make the same state durable: with the changelog and without. What the
    figures mean, and how good they are: docs/guides/estimate.md.
    """
    settings = job.settings.with_materialization(materialize_interval, replay_target)
    job = replace(job, settings=settings)
    strategies = []
    warnings = []
    for estimate in (estimate_changelog, estimate_incremental):
        result = estimate(job.workload, settings)
        strategy = estimate_fields(result) | {"bills": job.prices.bills(result.usage)}
        strategies.append(strategy)
        for warning in strategy["warnings"]:
            warnings.append(f"{strategy['strategy']}: {warning}")
    fields = job.fields() | {"strategies": strategies}
    fields["settings"] |= {
        "materialize_interval_s": materialize_interval,
        "replay_target_s": replay_target,
    }
    output.show(
        fields,
        Rows(strategies, *_COLUMNS),
        *_compared(job, strategies),
        *job.prices.lines(*warnings),
    )
    return EXIT_OK


def _compared(job: DescribedJob, strategies: Sequence[dict[str, Any]]) -> Iterator[str | Rows]:
    yield ""
    bills = []
    for index, book in enumerate(job.prices.books):
        costs = {"cost a month": book.provider, "currency": book.currency}
        for strategy in strategies:
            costs[strategy["strategy"]] = amount(strategy["bills"][index]["total"])
        bills.append(costs)
    yield Rows(bills, *bills[0])
    for strategy in strategies:
        if strategy["log"] is not None:
            yield ""
            yield _log(strategy["log"], strategy["materialize_s"])


def _log(log: dict[str, float], materialize_s: float) -> str:
    return (
        f"log: {short(log['changes_per_s'])} changes/s (one per {log['combine']:.1f} updates), "
        f"{size(int(log['bytes_per_s']))}/s, {size(int(log['peak_bytes']))} stored at most "
        f"(rule of thumb: {size(int(log['rule_of_thumb_bytes']))}); tables uploaded every "
        f"{duration_text(round(materialize_s, 1))}"
    )
