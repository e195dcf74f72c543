"""What `estimate` and `plan` begin with: a job and the prices to use.

Invariants: those of `tidelog.cli.store.options`; no store is opened, nothing is written but
which warnings were printed today.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec

import click

from tidelog.cli.estimate.prices import chosen_books, on_prices
from tidelog.cli.options import add_options, option
from tidelog.cli.output import Output
from tidelog.cli.store.options import on_this_machine
from tidelog.cli.values import count, duration, latency, to_bytes
from tidelog.cost.model.settings import Link, Settings
from tidelog.cost.model.workload import Workload
from tidelog.cost.prices import PriceBook
from tidelog.errors import ConfigError
from tidelog.options.units import show_duration

OPTIONS: Final = (
    click.option(
        "--writes-per-second",
        type=count,
        required=True,
        metavar="N",
        help="Updates of keyed state, over all subtasks, such as 20k; a list element or a timer "
        "counts as one.",
    ),
    click.option("--keys", type=count, metavar="N", help="Live keys; or give --state-size."),
    click.option(
        "--state-size",
        type=to_bytes,
        metavar="SIZE",
        help="Live state as the table stores it.  [default: keys x row]",
    ),
    option(
        "--key-bytes",
        type=to_bytes,
        default="16",
        metavar="SIZE",
        help="Of a key.",
    ),
    option(
        "--value-bytes",
        type=to_bytes,
        default="100",
        metavar="SIZE",
        help="Of a value.",
    ),
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
    option(
        "--parallelism",
        type=click.IntRange(min=1),
        default=1,
        help="Subtasks with keyed state in all; Spark: partitions.",
    ),
    option(
        "--processes",
        type=click.IntRange(min=1),
        default=1,
        help="Jobs that share the work, each with a store; Spark: executors.",
    ),
    option(
        "--checkpoint-interval",
        type=duration,
        default=show_duration(Settings().checkpoint_interval),
        help="Spark: time between two batches.",
    ),
    option(
        "--retain",
        type=click.IntRange(min=1),
        default=Settings().retain,
        help="Checkpoints to keep.",
    ),
    option("--restores-per-month", type=click.FloatRange(min=0), default=30.0),
    option(
        "--bandwidth",
        type=to_bytes,
        default="100MB",
        metavar="SIZE",
        help="To the store, of one process, a second.",
    ),
    option("--latency", type=latency, default="30ms", help="Of one request."),
    on_prices,
    click.option(
        "--egress", is_flag=True, help="What restores read leaves the provider, and is billed."
    ),
)


P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class Described:
    """The job and the prices, as the options describe them."""

    workload: Workload
    settings: Settings
    books: Sequence[PriceBook]
    egress: bool
    notes: bool
    """The user chose providers: their books' notes are of interest."""


def on_a_description(
    function: Callable[Concatenate[Output, Described, P], int],
) -> Callable[..., None]:
    """Make a command function of `function`, which gets the described job and returns the exit
    code; adds the options for it, --json and --debug.
    """

    @add_options(*OPTIONS)
    @on_this_machine
    @functools.wraps(function)
    def command(output: Output, /, **options: Any) -> int:
        described, rest = _describe(**options)
        return function(output, described, **rest)  # type: ignore[call-arg]

    return command


def _describe(
    *,
    writes_per_second: float,
    keys: float | None,
    state_size: int | None,
    key_bytes: int,
    value_bytes: int,
    skew: float,
    compression: float,
    parallelism: int,
    processes: int,
    checkpoint_interval: float,
    retain: int,
    restores_per_month: float,
    bandwidth: int,
    latency: float,
    providers: tuple[str, ...],
    price_files: tuple[Path, ...],
    egress: bool,
    **rest: Any,
) -> tuple[Described, dict[str, Any]]:
    books = chosen_books(providers, price_files)
    workload = Workload(
        writes_per_s=writes_per_second,
        keys=_keys(keys, state_size, key_bytes + value_bytes),
        key_bytes=key_bytes,
        value_bytes=value_bytes,
        skew=skew,
        compression=compression,
        state_bytes=state_size,
    )
    settings = Settings(
        parallelism=parallelism,
        processes=processes,
        checkpoint_interval=checkpoint_interval,
        retain=retain,
        restores_per_month=restores_per_month,
        link=Link(bandwidth, latency),
    )
    notes = bool(providers or price_files)
    return Described(workload, settings, books, egress, notes), rest


def _keys(keys: float | None, state_size: int | None, row_bytes: int) -> int:
    if keys is not None:
        return int(keys)
    if state_size is None:
        raise ConfigError(
            "options --keys and --state-size",
            expected="at least one of them",
            found="neither",
            action="say how many keys are live, or how large the state is",
        )
    return max(1, state_size // max(row_bytes, 1))
