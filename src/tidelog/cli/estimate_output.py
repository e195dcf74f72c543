"""How `estimate` and `plan` print numbers and warnings for people."""

from collections.abc import Iterable
from typing import Final

from tidelog.cli.output import Output

_SMALL: Final = 100


def short(number: float) -> str:
    """A number for people: 12.3 M, 45.6 k, 789, 1.2."""
    for unit, factor in ((" G", 1e9), (" M", 1e6), (" k", 1e3)):
        if number >= factor:
            return f"{number / factor:.1f}{unit}"
    return f"{number:.0f}" if number >= _SMALL else f"{number:.1f}"


def span(seconds: float) -> str:
    """A time that something takes, for people: 0.07 s, 29.7 s, 41.5 min, 3.2 h."""
    if seconds < 120:
        return f"{seconds:.2f} s" if seconds < 1 else f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7_200 else f"{seconds / 3600:.1f} h"


def amount(money: float) -> str:
    """An amount of money without its currency."""
    return f"{money:.2f}"


def print_warnings(output: Output, warnings: Iterable[str]) -> None:
    """Each on its line."""
    for warning in warnings:
        output.line(f"warning: {warning}")
