"""Prices on the command line: the options that choose them, and how they are printed.

Invariant: every command that prices something takes the same options and says the same of a book.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import click

from tidelog.cli.output import Output
from tidelog.cli.store.options import add_options
from tidelog.cost.prices import PriceBook, choose_books, read_book
from tidelog.effects import SystemClock

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


def chosen_books(providers: Iterable[str], price_files: Iterable[Path]) -> list[PriceBook]:
    """The books that the options choose; raises ConfigError."""
    return choose_books(providers, map(read_book, price_files))


def today() -> date:
    """The date, for the age of prices."""
    return datetime.fromtimestamp(SystemClock().now_ms() / 1000, UTC).date()


def price_warnings(books: Sequence[PriceBook], day: date) -> list[str]:
    """What to say of books that are out of date."""
    return [warning for book in books if (warning := book.warning(day))]


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
