"""Options that the commands of `tidelog bench` share."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from tidelog_bench.measurement import Size
from tidelog_bench.session.records import DIRECTORY

PAIRS: Final = 5
"""Pairs of each experiment in a standard session."""

results_option = click.option(
    "--results",
    type=click.Path(file_okay=False, path_type=Path),
    default=DIRECTORY,
    show_default=True,
    help="Directory of the sessions' records.",
)


def sized(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --quick and --full; the function gets `size`."""

    @click.option(
        "--quick",
        is_flag=True,
        help="Everything in ten minutes: small, one pair; what does not fit is cut.",
    )
    @click.option("--full", is_flag=True, help="Every combination; a day and more.")
    @functools.wraps(function)
    def command(*args: Any, quick: bool, full: bool, **options: Any) -> Any:
        if quick and full:
            raise click.UsageError("--quick and --full exclude each other")
        size = Size.QUICK if quick else Size.FULL if full else Size.STANDARD
        return function(*args, size=size, **options)

    return command


def pairs_of(size: Size, asked: int | None) -> int:
    """How many pairs a session of this size has."""
    if asked is not None:
        return asked
    return 1 if size is Size.QUICK else PAIRS
