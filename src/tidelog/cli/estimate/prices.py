"""Prices on the command line: the options that choose them, and how they are printed.

Invariants: every command that prices something takes the same options and says the same of a book;
a person is told once a day that a book is out of date, a program with every answer.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from tidelog.cli.options import add_options
from tidelog.cli.output import Output
from tidelog.cost.prices import PriceBook, choose_books, read_book
from tidelog.effects import SystemClock, cache_directory

on_prices = add_options(
    click.option(
        "--provider",
        "providers",
        multiple=True,
        metavar="NAME",
        help="Prices to use; may be repeated.  [default: all clouds]",
    ),
    click.option(
        "--prices",
        "price_files",
        multiple=True,
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="A price book of your own, TOML or JSON; may be repeated.",
    ),
)
"""Options --provider and --prices: `providers` and `price_files`."""


_STAMP: Final = "price-warnings.json"


class _Told(msgspec.Struct, frozen=True):
    """The warnings that were printed on a day."""

    day: date
    warnings: frozenset[str]


def chosen_books(providers: Iterable[str], price_files: Iterable[Path]) -> list[PriceBook]:
    """The books that the options choose; raises ConfigError."""
    return choose_books(providers, map(read_book, price_files))


def today() -> date:
    """The date, for the age of prices."""
    return datetime.fromtimestamp(SystemClock().now_ms() / 1000, UTC).date()


def price_warnings(books: Sequence[PriceBook], day: date) -> list[str]:
    """What to say of books that are out of date."""
    return [warning for book in books if (warning := book.warning(day))]


def print_price_warnings(output: Output, warnings: Iterable[str], day: date) -> None:
    """Those that this user has not been told on this day."""
    try:
        stamp = cache_directory() / _STAMP
    except RuntimeError:  # a user without a home directory
        print_warnings(output, warnings)
    else:
        print_warnings(output, untold(warnings, day, stamp))


def untold(warnings: Iterable[str], day: date, stamp: Path) -> list[str]:
    """The warnings that the file `stamp` does not name for this day; from now on it does.

    A file that cannot be read or written is no error: then something is told again.
    """
    try:
        told = msgspec.json.decode(stamp.read_bytes(), type=_Told)
        known = told.warnings if told.day == day else frozenset()
    except (OSError, msgspec.MsgspecError, ValueError):
        known = frozenset()
    new = [warning for warning in warnings if warning not in known]
    if new:
        with suppress(OSError):
            stamp.parent.mkdir(parents=True, exist_ok=True)
            stamp.write_bytes(msgspec.json.encode(_Told(day, known.union(new))))
    return new


def print_warnings(output: Output, warnings: Iterable[str]) -> None:
    """Each on its line."""
    for warning in warnings:
        output.line(f"warning: {warning}")


def print_prices(output: Output, books: Sequence[PriceBook], *, notes: bool) -> None:
    """Where prices come from; with the notes of the books."""
    output.line()
    for book in books:
        output.line(
            f"prices: {book.provider} is {book.title}, {book.region}, as of "
            f"{book.as_of.isoformat()}"
        )
        for note in book.notes if notes else ():
            output.line(f"  {note}")


def book_fields(book: PriceBook, day: date) -> dict[str, Any]:
    """A book as JSON: docs/reference/cli-json.md."""
    return {
        "provider": book.provider,
        "title": book.title,
        "region": book.region,
        "currency": book.currency,
        "as_of": book.as_of,
        "expires": book.expires,
        "expired": day > book.expires,
        "sources": book.sources,
        "notes": book.notes,
    }
