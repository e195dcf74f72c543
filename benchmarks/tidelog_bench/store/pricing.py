"""What measured traffic would cost in a day.

Invariant: one price times one quantity per line, list prices of `tidelog.cost.model`; what is free
there is free here.
"""

from dataclasses import dataclass
from typing import Final

from tidelog.cost.model.usage import DAY_S, MONTH_S
from tidelog.cost.prices import PriceBook, built_in_books
from tidelog.errors import ConfigError
from tidelog_bench.store.modelled import Traffic

PROVIDER: Final = "aws-s3-standard"
"""Whose prices are taken by default: dollars."""

_PUT_CLASS: Final = ("put", "copy", "mkdirs")
_GET_CLASS: Final = ("get", "head")
_KNOWN: Final = {*_PUT_CLASS, *_GET_CLASS, "list", "delete"}


@dataclass(frozen=True, slots=True)
class Daily:
    """The bill of a day, in the currency of the prices."""

    requests: float
    storage: float
    transfer: float

    @property
    def total(self) -> float:
        """The sum of all lines."""
        return self.requests + self.storage + self.transfer


def daily(traffic: Traffic, book: PriceBook | None = None) -> Daily:
    """The bill of a day in which all of it goes on as it was measured, within one region.

    Raises ConfigError for a kind of request that has no price, and for traffic of no time.
    """
    book = book or built_in_books()[PROVIDER]
    unknown = sorted(set(traffic.requests) - _KNOWN)
    if unknown or traffic.seconds <= 0:
        raise ConfigError(
            "measured traffic",
            expected=f"requests among {', '.join(sorted(_KNOWN))}, and a time above 0 s",
            found=f"{', '.join(unknown) or 'these'}, within {traffic.seconds} s",
            action="count what is billed under the name of what it is",
        )
    times = DAY_S / traffic.seconds
    count = {kind: traffic.requests.get(kind, 0) * times / 1000 for kind in _KNOWN}
    requests = (
        sum(count[kind] for kind in _PUT_CLASS) * book.put_per_1000
        + sum(count[kind] for kind in _GET_CLASS) * book.get_per_1000
        + count["list"] * book.list_per_1000
        + count["delete"] * book.delete_per_1000
    )
    moved = traffic.uploaded_bytes * book.upload_gb + traffic.downloaded_bytes * book.retrieval_gb
    return Daily(
        requests=requests,
        storage=traffic.stored_bytes / book.gb_bytes * book.storage_gb_month * DAY_S / MONTH_S,
        transfer=moved * times / book.gb_bytes,
    )
