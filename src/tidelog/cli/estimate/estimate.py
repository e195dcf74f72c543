"""`tidelog estimate`: what a job will store, ask for and cost, before it runs; and what `plan` has
in common with it: the job and the prices to use, and what is said of them.

Invariants: those of `tidelog.cli.store.options`; no store is opened, nothing is written. An option
is named as the field that it fills. In JSON (docs/reference/cli-json.md) times are seconds, sizes
bytes; rates are a day's.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

import click

from tidelog.cli.estimate.prices import Prices, object_fields, on_prices
from tidelog.cli.exit_codes import EXIT_OK
from tidelog.cli.options import add_options, option
from tidelog.cli.output import Column, Output, Rows, fields_of
from tidelog.cli.store.options import on_this_machine
from tidelog.cli.values import (
    amount,
    bounds,
    count,
    duration,
    duration_text,
    latency,
    short,
    size,
    span,
    to_bytes,
)
from tidelog.cost.model.embedded import estimate_changelog, estimate_incremental
from tidelog.cost.model.job import Settings, StoreLink, Workload
from tidelog.cost.model.timed import in_sessions, joined
from tidelog.cost.model.usage import DAY_S, MONTH_S, Estimate
from tidelog.errors import ConfigError
from tidelog.materialize.schedule import MaterializeConfig
from tidelog.options.units import show_duration

_COUNT: Final = click.IntRange(min=1)
_OPTIONS: Final = (
    click.option(
        "--writes-per-second",
        "writes_per_s",
        type=count,
        required=True,
        metavar="N",
        help="Updates of keyed state, over all subtasks, such as 20k; a list element or a timer "
        "counts as one.",
    ),
    click.option("--keys", type=count, metavar="N", help="Live keys; or give --state-size."),
    click.option(
        "--state-size",
        "state_bytes",
        type=to_bytes,
        metavar="SIZE",
        help="Live state as the table stores it.  [default: keys x row]",
    ),
    option("--key-bytes", type=to_bytes, default="16", metavar="SIZE", help="Of a key."),
    option("--value-bytes", type=to_bytes, default="100", metavar="SIZE", help="Of a value."),
    option(
        "--skew",
        type=float,
        default=0.0,
        help="Zipf exponent of the keys: 0 is uniform, 1 is what words of a language have.",
    ),
    option(
        "--compression",
        type=float,
        default=1.0,
        help="Size of the log as stored over its raw size; 1 is an upper limit.",
    ),
    click.option(
        "--join",
        type=bounds,
        metavar="LOWER,UPPER",
        help="The writes are records of an interval join, half of each stream, such as -1m,5m; "
        "--keys is not needed.",
    ),
    click.option(
        "--session",
        type=duration,
        metavar="GAP",
        help="The writes are records in session windows with this gap.",
    ),
    option(
        "--delay",
        type=latency,
        default="0s",
        help="How far event time is behind the records; of --join and --session.",
    ),
    option("--parallelism", type=_COUNT, default=1, help="Subtasks with keyed state in all."),
    option(
        "--processes", type=_COUNT, default=1, help="Jobs that share the work, each with a store."
    ),
    option(
        "--checkpoint-interval",
        type=duration,
        default=show_duration(Settings().checkpoint_interval),
    ),
    option("--retain", type=_COUNT, default=Settings().retain, help="Checkpoints to keep."),
    option("--restores-per-month", type=click.FloatRange(min=0), default=30.0),
    option(
        "--bandwidth",
        "bytes_per_s",
        type=to_bytes,
        default="100MB",
        metavar="SIZE",
        help="To the store, of one process, a second.",
    ),
    option("--latency", "latency_s", type=latency, default="30ms", help="Of one request."),
    on_prices,
    click.option(
        "--egress", is_flag=True, help="What restores read leaves the provider, and is billed."
    ),
)

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DescribedJob:
    """The job and the prices, as the options describe them."""

    workload: Workload
    settings: Settings
    prices: Prices
    egress: bool

    def fields(self) -> dict[str, Any]:
        settings, link = self.settings, self.settings.link
        return {
            "workload": self.workload,
            "settings": {
                "parallelism": settings.parallelism,
                "processes": settings.processes,
                "checkpoint_interval_s": settings.checkpoint_interval,
                "retain": settings.retain,
                "restores_per_month": settings.restores_per_month,
                "bandwidth_bytes_per_s": link.bytes_per_s,
                "latency_s": link.latency_s,
                "egress": self.egress,
            },
            **self.prices.fields(),
        }


def on_a_job(function: Callable[Concatenate[Output, DescribedJob, P], int]) -> Callable[..., None]:
    """Make a command function of `function`, which gets the described job and returns the exit
    code; adds the options for it, --json and --debug.
    """

    @add_options(*_OPTIONS)
    @on_this_machine
    @functools.wraps(function)
    def command(output: Output, /, **options: Any) -> int:
        try:
            job = _described(options)
            return function(output, job, **options)  # type: ignore[call-arg]
        except ArithmeticError as error:
            raise ConfigError(
                "the described job",
                expected="rates, sizes and times that a job can have",
                found=f"one so large or so small that the estimate has no number: {error}",
                action="correct the option that is far from what a job has",
            ) from error

    return command


def _described(options: dict[str, Any]) -> DescribedJob:
    """Takes its options out of all of a command."""
    prices = Prices.chosen(options.pop("providers"), options.pop("price_files"))
    join, gap, delay_s = (options.pop(name) for name in ("join", "session", "delay"))
    if join is not None and gap is not None:
        raise ConfigError(
            "--join and --session",
            expected="one of them: the writes are records of a join, or of session windows",
            found="both",
            action="estimate the two operators one after the other, and add up",
        )
    if options["keys"] is None:
        options["keys"] = 1 if join is not None else _keys(options)
    workload = _filled(Workload, options | {"keys": int(options["keys"])})
    settings = _filled(Settings, options | {"link": _filled(StoreLink, options)})
    flush_s = min(settings.checkpoint_interval, settings.flush.max_age)
    if join is not None:
        workload = joined(workload, *join, delay_s=delay_s, flush_s=flush_s)
    if gap is not None:
        workload = in_sessions(workload, gap, delay_s=delay_s, flush_s=flush_s)
    egress = options.pop("egress")
    for kind in (Workload, Settings, StoreLink):
        for field in fields(kind):
            options.pop(field.name, None)
    return DescribedJob(workload, settings, prices, egress)


def _filled(kind: type[T], options: dict[str, Any]) -> T:
    names = (field.name for field in fields(kind))  # type: ignore[arg-type]
    return kind(**{name: options[name] for name in names if name in options})


def _keys(options: dict[str, Any]) -> int:
    if options["state_bytes"] is None:
        raise ConfigError(
            "options --keys and --state-size",
            expected="at least one of them",
            found="neither",
            action="say how many keys are live, or how large the state is",
        )
    row_bytes: int = options["key_bytes"] + options["value_bytes"]
    keys: int = options["state_bytes"] // max(row_bytes, 1)
    return max(1, keys)


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
    found = [
        estimate_fields(each) | {"bills": job.prices.bills(each.usage, egress=job.egress)}
        for estimate in (estimate_changelog, estimate_incremental)
        for each in [estimate(job.workload, settings)]
    ]
    fields = job.fields() | {"strategies": found}
    fields["settings"] |= {
        "materialize_interval_s": materialize_interval,
        "replay_target_s": replay_target,
    }
    own = [f"{each['strategy']}: {warning}" for each in found for warning in each["warnings"]]
    output.show(fields, Rows(found, *_COLUMNS), *_compared(job, found), *job.prices.lines(*own))
    return EXIT_OK


def _compared(job: DescribedJob, found: Sequence[dict[str, Any]]) -> Iterator[str | Rows]:
    yield ""
    bills = [
        {"cost a month": book.provider, "currency": book.currency}
        | {each["strategy"]: amount(each["bills"][at]["total"]) for each in found}
        for at, book in enumerate(job.prices.books)
    ]
    yield Rows(bills, *bills[0])
    for each in found:
        if each["log"] is not None:
            yield ""
            yield _log(each["log"], each["materialize_s"])


def _log(log: dict[str, float], materialize_s: float) -> str:
    return (
        f"log: {short(log['changes_per_s'])} changes/s (one per {log['combine']:.1f} updates), "
        f"{size(int(log['bytes_per_s']))}/s, {size(int(log['peak_bytes']))} stored at most "
        f"(rule of thumb: {size(int(log['rule_of_thumb_bytes']))}); tables uploaded every "
        f"{duration_text(round(materialize_s, 1))}"
    )
