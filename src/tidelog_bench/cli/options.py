"""Options that the commands of `tidelog bench` share."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from tidelog.errors import ConfigError
from tidelog_bench.measurement import Size
from tidelog_bench.session.records import DIRECTORY

PAIRS: Final = 5
"""Fewer say too little about noise; only a quick session may have them."""

results_option = click.option(
    "--results",
    type=click.Path(file_okay=False, path_type=Path),
    default=DIRECTORY,
    show_default=True,
    help="Directory of the sessions' records.",
)


def sized(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --quick and --full; the function gets `size`."""

    @click.option("--quick", is_flag=True, help="Everything in ten minutes: small, one pair.")
    @click.option("--full", is_flag=True, help="Every combination; a day and more.")
    @functools.wraps(function)
    def command(*args: Any, quick: bool, full: bool, **options: Any) -> Any:
        if quick and full:
            raise click.UsageError("--quick and --full exclude each other")
        size = Size.QUICK if quick else Size.FULL if full else Size.STANDARD
        return function(*args, size=size, **options)

    return command


def pairs_of(size: Size, asked: int | None) -> int:
    """How many pairs a session of this size has; raises ConfigError for too few."""
    if asked is None:
        return 1 if size is Size.QUICK else PAIRS
    if asked < PAIRS and size is not Size.QUICK:
        raise ConfigError(
            f"--pairs {asked}",
            expected=f"{PAIRS} or more, unless --quick: fewer tell nothing from noise",
            found=str(asked),
            action="ask for more pairs or add --quick",
        )
    return asked
