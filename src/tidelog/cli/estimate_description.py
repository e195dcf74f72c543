"""What `estimate` and `plan` are told: a job and the prices to use.

Invariants: those of `tidelog.cli.options`; no store is opened, nothing is written but plots.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Concatenate, ParamSpec

import click

from tidelog.cli.estimate_options import OPTIONS
from tidelog.cli.options import reporting
from tidelog.cli.output import Output
from tidelog.cli.prices import chosen_books
from tidelog.errors import ConfigError
from tidelog.estimate.prices import PriceBook
from tidelog.estimate.settings import Link, Settings
from tidelog.estimate.workload import Workload

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

    @functools.wraps(function)
    def command(as_json: bool, debug: bool, **options: Any) -> None:
        output = Output(as_json=as_json)

        async def work() -> int:
            described, rest = _describe(**options)
            return function(output, described, **rest)  # type: ignore[call-arg]

        click.get_current_context().exit(reporting(work, output, debug=debug))

    for option in reversed(OPTIONS):
        command = option(command)
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
