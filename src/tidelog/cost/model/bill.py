"""What a month costs: usage times prices.

Invariants: every line of a bill is one price times one quantity, and the total is their sum; a bill
has one currency.
"""

from dataclasses import dataclass

from tidelog.cost.model.usage import MONTH_S, Flow, Usage
from tidelog.cost.prices import PriceBook


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
        """The sum of all lines."""
        return self.storage + self.put + self.list + self.get + self.delete + self.transfer


def bill(book: PriceBook, usage: Usage, *, egress: bool = False) -> Bill:
    """The bill of a month; with `egress`, what restores read leaves the provider."""
    per_gb = MONTH_S / book.gb_bytes
    read = book.retrieval_gb + (book.egress_gb if egress else 0.0)
    uploaded = usage.uploaded_per_s * per_gb * book.upload_gb
    return Bill(
        provider=book.provider,
        currency=book.currency,
        storage=billed_bytes(book, usage) / book.gb_bytes * book.storage_gb_month,
        put=usage.puts_per_s * MONTH_S / 1000 * book.put_per_1000,
        list=usage.reads.lists * MONTH_S / 1000 * book.list_per_1000,
        get=usage.reads.gets * MONTH_S / 1000 * book.get_per_1000,
        delete=usage.deletes_per_s * MONTH_S / 1000 * book.delete_per_1000,
        transfer=uploaded + usage.reads.bytes * per_gb * read,
    )


def billed_bytes(book: PriceBook, usage: Usage) -> float:
    """Bytes that count as stored: short-lived and small objects count for more than they are."""
    return sum(_billed(book, flow) for flow in usage.flows)


def _billed(book: PriceBook, flow: Flow) -> float:
    size = max(flow.bytes, book.minimum_object_bytes)
    return flow.per_s * size * max(flow.life_s, book.minimum_storage_s)
