"""What a restore of the newest checkpoint would read and take, and what a day of the job costs.

Invariants: bytes, objects and changes are those that are stored; time and money are the cost
model's and the price books', with their own defaults, and say for how long they were counted.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain
from typing import Final
from urllib.parse import urlsplit

import msgspec

from tidelog.cost.measured.fetching import fetch_of
from tidelog.cost.model.job import Settings, StoreLink
from tidelog.cost.model.restoring import Fetch, first_record_s, restore_s
from tidelog.cost.model.usage import DAY_S, MONTH_S
from tidelog.cost.prices import PriceBook, choose_books
from tidelog.storage import object_names
from tidelog.ui.live import Json, figure
from tidelog.ui.stored import StoreView, problem_of

_KINDS: Final = {
    object_names.SEGMENTS: "log segments",
    object_names.TABLES: "table files",
    object_names.MATERIALIZATIONS: "descriptors",
}
_PROVIDERS: Final = {
    "s3": "aws-s3-standard",
    "s3a": "aws-s3-standard",
    "gs": "gcp-storage-standard",
    "gcs": "gcp-storage-standard",
    "abfs": "azure-blob-hot",
    "abfss": "azure-blob-hot",
    "az": "azure-blob-hot",
    "oss": "aliyun-oss-standard",
}
"""Price books by the scheme of a store's URL."""
_USUAL: Final = "aws-s3-standard"
"""Stands first for a store that is at no provider."""
_ENOUGH_S: Final = 60.0
"""Requests are not extrapolated to a day from less than this."""


class RestorePart(msgspec.Struct, frozen=True, kw_only=True):
    """What a restore of one checkpoint reads, and what it would take."""

    checkpoint: int
    fetch: Fetch
    seconds: float
    """By the model of `tidelog estimate`, from a started process until its tables are whole."""
    first_record_s: float
    """Until a record is handled, where the job begins before that."""
    replay_s: float
    """The part of them in which changes are replayed."""
    link: StoreLink
    replay_per_s: float
    possible: bool
    """No problem of the checkpoint is known."""


class ObjectsStored(msgspec.Struct, frozen=True):
    """Objects of one kind in the store."""

    kind: str
    objects: int
    bytes: int


class RequestsADay(msgspec.Struct, frozen=True):
    """Requests a day at the pace since the job's start."""

    put: float
    list: float
    get: float
    delete: float
    bytes_written: float
    bytes_read: float
    over_s: float
    """Seconds that they were counted for."""


class BillLine(msgspec.Struct, frozen=True, kw_only=True):
    """A day at one provider, in its currency."""

    provider: str
    title: str
    region: str
    currency: str
    as_of: str
    storage: float
    requests: float | None
    """Null where nobody counts requests."""
    transfer: float | None
    total: float | None
    """Null as long as requests are not known: storage alone is the smaller part of most bills."""
    here: bool
    """The store's URL says that it is this provider's."""
    warning: str | None


class BillPart(msgspec.Struct, frozen=True):
    stored: tuple[ObjectsStored, ...]
    at_ms: int
    """When the objects were listed."""
    requests: RequestsADay | None
    lines: tuple[BillLine, ...]


def restore_part(view: StoreView) -> RestorePart | None:
    """The restore of the newest checkpoint that can be read; None without any."""
    checkpoint = view.slots.newest
    if checkpoint is None:
        return None
    fetch, settings = fetch_of(view.inventory, checkpoint), Settings()
    total_s = restore_s(fetch, settings)
    return RestorePart(
        checkpoint=checkpoint.slot,
        fetch=fetch,
        seconds=total_s,
        first_record_s=first_record_s(fetch, settings),
        replay_s=total_s - restore_s(replace(fetch, changes=0.0), settings),
        link=settings.link,
        replay_per_s=settings.materialize.replay_rate,
        possible=problem_of(view, checkpoint.slot) is None,
    )


def bill_part(
    view: StoreView, status: Json | None, started_ms: int | None, now_ms: int
) -> BillPart:
    """What a day costs by all price books, that of the store's own provider first.

    `status` is that of the running job, which counts its requests since `started_ms`.
    """
    sizes = _sizes(view)
    requests = _requests(status, started_ms, now_ms)
    provider = _PROVIDERS.get(urlsplit(view.url).scheme)
    books = sorted(
        choose_books((), ()), key=lambda b: (b.provider != provider, b.provider != _USUAL)
    )
    return BillPart(
        tuple(ObjectsStored(kind, len(group), sum(group)) for kind, group in sizes.items()),
        view.objects_ms,
        requests,
        tuple(_line(book, sizes, requests, provider, now_ms) for book in books),
    )


def _sizes(view: StoreView) -> dict[str, list[int]]:
    sizes: dict[str, list[int]] = {}
    for kind in _KINDS.values():
        sizes[kind] = []
    for name, size in view.inventory.sizes.items():
        sizes[_KINDS[name.partition("/")[0] + "/"]].append(size)
    return {**sizes, "manifests": list(view.slots.sizes.values())}


def _requests(status: Json | None, started_ms: int | None, now_ms: int) -> RequestsADay | None:
    store = status.get("store") if status is not None else None
    if not store or started_ms is None or now_ms - started_ms < _ENOUGH_S * 1000:
        return None
    over_s = (now_ms - started_ms) / 1000

    def a_day(*operations: str) -> float:
        # Every attempt is billed, also one that was repeated.
        return sum(figure(store, name, "attempts") or 0 for name in operations) / over_s * DAY_S

    return RequestsADay(
        put=a_day("put", "create"),
        list=a_day("list"),
        get=a_day("get", "head"),
        delete=a_day("delete"),
        bytes_written=(figure(store, "bytes_written") or 0) / over_s * DAY_S,
        bytes_read=(figure(store, "bytes_read") or 0) / over_s * DAY_S,
        over_s=over_s,
    )


def _line(
    book: PriceBook,
    sizes: Mapping[str, list[int]],
    requests: RequestsADay | None,
    provider: str | None,
    now_ms: int,
) -> BillLine:
    billed = 0.0
    for size in chain.from_iterable(sizes.values()):
        billed += max(size, book.minimum_object_bytes)
    storage = billed / book.gb_bytes * book.storage_gb_month * DAY_S / MONTH_S
    request_cost = transfer_cost = total = None
    if requests is not None:
        request_cost = (
            requests.put * book.put_per_1000
            + requests.list * book.list_per_1000
            + requests.get * book.get_per_1000
            + requests.delete * book.delete_per_1000
        ) / 1000
        transfer_cost = book.moved(requests.bytes_written, requests.bytes_read)
        total = storage + request_cost + transfer_cost
    return BillLine(
        provider=book.provider,
        title=book.title,
        region=book.region,
        currency=book.currency,
        as_of=book.as_of.isoformat(),
        storage=storage,
        requests=request_cost,
        transfer=transfer_cost,
        total=total,
        here=book.provider == provider,
        warning=book.warning(datetime.fromtimestamp(now_ms / 1000, UTC).date()),
    )
