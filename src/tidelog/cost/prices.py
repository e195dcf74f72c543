"""Price books: what a provider charges, as a data file with its source and date; and what a month
costs by them.

Invariants: a book fits this type to the letter or it is refused; amounts of different currencies
never meet; a book that is out of date still counts, but says so. Every line of a bill is one price
times one quantity, and the total is their sum.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache
from importlib.resources import files
from math import isfinite
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from tidelog.cost.model.usage import MONTH_S, Flow, Usage
from tidelog.errors import ConfigError, usable_path
from tidelog.options.units import plural

GOOD_FOR = timedelta(days=365)
"""A price book that names no last day is out of date after a year."""

Price = Annotated[float, msgspec.Meta(ge=0)]
Name = Annotated[str, msgspec.Meta(pattern="^[a-z0-9][a-z0-9-]*$", max_length=40)]
Currency = Annotated[str, msgspec.Meta(pattern="^[A-Z]{3}$")]
Text = Annotated[str, msgspec.Meta(min_length=1)]


class PriceSource(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where figures come from."""

    url: Text
    says: Text
    """Which figures, and how they were read."""


class PriceBook(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """List prices of one storage class in one region, first tier, without free quotas."""

    provider: Name
    title: Text
    region: Text
    currency: Currency
    as_of: date
    """The day for which the figures are known."""
    gb_bytes: Literal[1_000_000_000, 1_073_741_824]
    """What the provider calls a GB."""
    storage_gb_month: Price
    put_per_1000: Price
    list_per_1000: Price
    get_per_1000: Price
    delete_per_1000: Price
    sources: Annotated[tuple[PriceSource, ...], msgspec.Meta(min_length=1)]
    upload_gb: Price | None = None
    """Per GB written, on top of the request; None, of this and the next two: the book has none."""
    retrieval_gb: Price | None = None
    """Per GB read, on top of the request."""
    egress_gb: Price | None = None
    """Per GB that leaves the provider."""
    minimum_storage_s: Price = 0.0
    """An object that is deleted earlier is billed for this long."""
    minimum_object_bytes: Price = 0.0
    """A smaller object is billed as one of this size."""
    by_default: bool = True
    """Used when no provider is named."""
    valid_until: date | None = None
    notes: tuple[Text, ...] = ()

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, float) and not isfinite(value):
                raise ValueError(f"{name} is {value}: a price is a finite number")

    @property
    def expires(self) -> date:
        """The last day on which its prices hold."""
        return self.valid_until or self.as_of + GOOD_FOR

    def warning(self, today: date) -> str | None:
        """The warning of a book that is out of date."""
        if today <= self.expires:
            return None
        return (
            f"the prices of {self.provider} are of {self.as_of.isoformat()}: compare them with "
            f"{self.sources[0].url} and pass your own with --prices FILE"
        )

    def moved(self, written_bytes: float, read_bytes: float) -> float:
        """What writing and reading so many bytes costs besides the requests."""
        cost = written_bytes * (self.upload_gb or 0.0) + read_bytes * (self.retrieval_gb or 0.0)
        return cost / self.gb_bytes

    def unpriced(self, *, egress: bool) -> str | None:
        """The warning of a book without some prices, which count as 0."""
        names = ("upload_gb", "retrieval_gb", *(("egress_gb",) if egress else ()))
        unset = [name for name in names if getattr(self, name) is None]
        if not unset:
            return None
        return (
            f"the prices of {self.provider} have no {', '.join(unset)}, which counts as 0: "
            "write 0 into the book where it costs nothing"
        )


@cache
def built_in_books() -> dict[str, PriceBook]:
    """The books that come with tidelog, by provider."""
    folder = files("tidelog.cost").joinpath("price_books")
    books: dict[str, PriceBook] = {}
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.name.endswith(".toml"):
            book = _decode(entry.read_bytes(), entry.name)
            books[book.provider] = book
    return books


def read_book(path: Path) -> PriceBook:
    """A user's own book, TOML or JSON; raises ConfigError."""
    with usable_path(f"price book {path}", expected="a readable file", action="correct the path"):
        data = path.read_bytes()
    return _decode(data, str(path))


def choose_books(providers: Iterable[str], own_books: Iterable[PriceBook]) -> list[PriceBook]:
    """The books of the named providers; without names the user's own, or else all that are used
    by default.

    A user's book takes the place of a built-in one of the same name. Raises ConfigError for a name
    without a book, and for two books of one name.
    """
    by_provider, own_numbers = dict(built_in_books()), Counter[str]()
    for book in own_books:
        by_provider[book.provider] = book
        own_numbers[book.provider] += 1
    for name, number in own_numbers.items():
        if number > 1:
            raise ConfigError(
                f"the price books of provider {name!r}",
                expected="one",
                found=plural(number, "file"),
                action="give each a name of its own, such as "
                f"{' and '.join(f'{name}-{n}' for n in range(1, number + 1))}",
            )
    default = [*own_numbers] or [name for name, book in by_provider.items() if book.by_default]
    chosen: list[PriceBook] = []
    for name in [*dict.fromkeys(providers)] or default:
        if name not in by_provider:
            raise ConfigError(
                f"provider {name!r}",
                expected=f"one of {', '.join(by_provider)}",
                found="no price book of that name",
                action="correct the name, or pass a price book with --prices FILE",
            )
        chosen.append(by_provider[name])
    return chosen


def _decode(data: bytes, name: str) -> PriceBook:
    decode = msgspec.json.decode if name.endswith(".json") else msgspec.toml.decode
    try:
        return decode(data, type=PriceBook)
    except (msgspec.MsgspecError, ValueError) as cause:
        raise ConfigError(
            f"price book {name}",
            expected="the fields that docs/guides/estimate.md lists",
            found=str(cause),
            action="correct the file",
        ) from cause


@dataclass(frozen=True, slots=True)
class Bill:
    """A month at one provider, in its currency."""

    provider: str
    currency: str
    storage: float
    put: float
    list: float
    get: float
    delete: float
    transfer: float
    """Bytes written, read, and sent out, where they cost."""

    @property
    def total(self) -> float:
        return self.storage + self.put + self.list + self.get + self.delete + self.transfer


def bill(book: PriceBook, usage: Usage, *, egress: bool = False) -> Bill:
    """The bill of a month; with `egress`, what restores read leaves the provider."""
    thousands, gigabytes = MONTH_S / 1000, MONTH_S / book.gb_bytes
    leaving = usage.reads.bytes * (book.egress_gb or 0.0) if egress else 0.0
    billed = sum(billed_bytes(book, flow) for flow in usage.flows)
    return Bill(
        provider=book.provider,
        currency=book.currency,
        storage=billed / book.gb_bytes * book.storage_gb_month,
        put=usage.puts_per_s * thousands * book.put_per_1000,
        list=usage.reads.lists * thousands * book.list_per_1000,
        get=usage.reads.gets * thousands * book.get_per_1000,
        delete=usage.puts_per_s * thousands * book.delete_per_1000,
        transfer=leaving * gigabytes
        + book.moved(usage.uploaded_per_s, usage.reads.bytes) * MONTH_S,
    )


def billed_bytes(book: PriceBook, flow: Flow) -> float:
    """Bytes that count as stored: short-lived and small objects count for more than they are."""
    size = max(flow.bytes, book.minimum_object_bytes)
    return flow.per_s * size * max(flow.life_s, book.minimum_storage_s)
