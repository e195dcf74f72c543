"""Prices on the command line: the options that choose them, and how they and bills are shown.

Invariant: every command that prices something takes the same options and says the same of a book.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import click

from tidelog.cli.options import add_options
from tidelog.cli.output import fields_of
from tidelog.cost.model.usage import DAY_S, Usage
from tidelog.cost.prices import Bill, PriceBook, bill, choose_books, read_book
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


@dataclass(frozen=True, slots=True)
class Prices:
    """The books that the options choose."""

    books: Sequence[PriceBook]
    notes: bool
    """The user chose providers: their books' notes are of interest."""
    day: date
    egress: bool = False
    """What restores read leaves the provider."""

    @classmethod
    def chosen(
        cls, providers: Sequence[str], price_files: Sequence[Path], *, egress: bool = False
    ) -> "Prices":
        """Raises ConfigError for a book that is not there or not usable."""
        books = choose_books(providers, map(read_book, price_files))
        return cls(books, bool(providers or price_files), today(), egress)

    def bills(self, usage: Usage) -> list[dict[str, Any]]:
        return [bill_fields(bill(book, usage, egress=self.egress)) for book in self.books]

    def fields(self) -> dict[str, Any]:
        names = ("provider", "title", "region", "currency", "as_of", "sources", "notes")
        books, warnings = [], []
        for book in self.books:
            fields = {name: getattr(book, name) for name in names}
            fields |= {"expires": book.expires, "expired": self.day > book.expires}
            books.append(fields)
            warnings.append(book.warning(self.day))
        return {"price_books": books, "warnings": [*filter(None, warnings), *self._unpriced()]}

    def _unpriced(self) -> Iterator[str]:
        for book in self.books:
            if warning := book.unpriced(egress=self.egress):
                yield warning

    def lines(self, *warnings: str) -> Iterator[str]:
        """Where prices come from, whether they are out of date, and other warnings."""
        yield ""
        for book in self.books:
            old = "" if self.day <= book.expires else ", out of date: pass your own with --prices"
            origin = f"{book.title}, {book.region}, as of {book.as_of}{old}"
            yield f"prices: {book.provider} is {origin}"
            for note in book.notes if self.notes else ():
                yield f"  {note}"
        for warning in (*warnings, *self._unpriced()):
            yield f"warning: {warning}"


def today() -> date:
    """The date, for the age of prices."""
    return datetime.fromtimestamp(SystemClock().now_ms() / 1000, UTC).date()


def bill_fields(bill: Bill) -> dict[str, Any]:
    return {**fields_of(bill), "total": bill.total}


def object_fields(usage: Usage) -> list[dict[str, Any]]:
    return [
        {
            **fields_of(flow, "per_s"),
            "per_day": flow.per_s * DAY_S,
            "stored_bytes": flow.stored_bytes,
        }
        for flow in usage.flows
    ]
