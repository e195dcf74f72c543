"""What a restore of the newest checkpoint would read and take, and what a day of the job costs.

Invariants: bytes, objects and changes are those that are stored; time and money are the cost
model's and the price books', with their own defaults, and say for how long they were counted.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlsplit

from tidelog.checkpoint.invariants import direct_needs
from tidelog.checkpoint.manifest import Checkpoint
from tidelog.checkpoint.sizes import replay_changes
from tidelog.cost.model.restoring import Fetch, Objects, restore_s
from tidelog.cost.model.settings import Settings
from tidelog.cost.model.usage import DAY_S, MONTH_S
from tidelog.cost.prices import PriceBook, choose_books
from tidelog.storage import object_names
from tidelog.ui.document import (
    BillLine,
    BillPart,
    ObjectsRead,
    ObjectsStored,
    RequestsADay,
    RestorePart,
)
from tidelog.ui.read import StoreView, newest_checkpoint
from tidelog.ui.stored import unreadable_descriptors

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


def restore_part(view: StoreView) -> RestorePart | None:
    """The restore of the newest checkpoint that can be read; None without any."""
    checkpoint = newest_checkpoint(view.slots)
    if checkpoint is None:
        return None
    fetch, settings = _fetch(view, checkpoint), Settings()
    whole = restore_s(fetch, settings)
    download = restore_s(replace(fetch, changes=0.0), settings)
    reads = (
        _read("manifests of all retained checkpoints", fetch.slots),
        _read("descriptors of all retained checkpoints", fetch.described),
        _read("descriptors of this one, once more", fetch.descriptors),
        _read("table files", fetch.files),
        _read("log segments, in part", fetch.segments),
    )
    wrong = any(checkpoint.slot in finding.unusable for finding in view.findings)
    return RestorePart(
        slot=checkpoint.slot,
        reads=reads,
        bytes=sum(each.bytes for each in reads),
        changes=int(fetch.changes),
        seconds=whole,
        download_s=download,
        replay_s=whole - download,
        link_bytes_per_s=settings.link.bytes_per_s,
        link_latency_s=settings.link.latency_s,
        link_requests=settings.link.requests,
        replay_per_s=settings.materialize.replay_rate,
        possible=not (wrong or unreadable_descriptors(view, checkpoint)),
    )


def _read(kind: str, objects: Objects) -> ObjectsRead:
    return ObjectsRead(kind, int(objects.count), int(objects.bytes))


def _fetch(view: StoreView, checkpoint: Checkpoint) -> Fetch:
    slots = view.slots.checkpoints
    ranges = dict.fromkeys(part for _, state in checkpoint.subtasks() for part in state.ranges)
    return Fetch(
        slots=Objects(len(slots), sum(view.slots.sizes[slot] for slot in slots)),
        described=_descriptors(list(slots.values())),
        descriptors=_descriptors([checkpoint]),
        files=_files(view, checkpoint),
        segments=Objects(
            len({part.segment for part in ranges}), sum(part.length for part in ranges)
        ),
        changes=sum(replay_changes(state) for _, state in checkpoint.subtasks()),
    )


def _descriptors(checkpoints: list[Checkpoint]) -> Objects:
    sizes = {
        layer.materialization.descriptor: layer.materialization.size
        for checkpoint in checkpoints
        for _, layer in checkpoint.layers()
        if layer.materialization is not None
    }
    return Objects(len(sizes), sum(sizes.values()))


def _files(view: StoreView, checkpoint: Checkpoint) -> Objects:
    """The table files of its descriptors; those of a descriptor that cannot be read are missing."""
    known = view.inventory.descriptors
    named = [known[need.name] for need in direct_needs(checkpoint) if need.name in known]
    sizes = {file.object: file.size for descriptor in named for file in descriptor.shared}
    return Objects(len(sizes), sum(sizes.values()))


def bill_part(
    view: StoreView, status: Mapping[str, Any] | None, started_ms: int | None, now_ms: int
) -> BillPart:
    """What a day costs by all price books, that of the store's own provider first.

    `status` is that of the running job, which counts its requests since `started_ms`.
    """
    sizes = _sizes(view)
    requests = _requests(status, started_ms, now_ms)
    own = _PROVIDERS.get(urlsplit(view.url).scheme)
    first = (own, _USUAL)
    books = sorted(choose_books((), ()), key=lambda b: [b.provider != name for name in first])
    return BillPart(
        tuple(ObjectsStored(kind, len(of), sum(of)) for kind, of in sizes.items()),
        view.objects_ms,
        requests,
        tuple(_line(book, sizes, requests, own, now_ms) for book in books),
    )


def _sizes(view: StoreView) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {kind: [] for kind in _KINDS.values()}
    for name, size in view.inventory.sizes.items():
        found[_KINDS[name.partition("/")[0] + "/"]].append(size)
    return {**found, "manifests": list(view.slots.sizes.values())}


def _requests(
    status: Mapping[str, Any] | None, started_ms: int | None, now_ms: int
) -> RequestsADay | None:
    store = status.get("store") if status is not None else None
    if store is None or started_ms is None or now_ms - started_ms < _ENOUGH_S * 1000:
        return None
    over_s = (now_ms - started_ms) / 1000

    def a_day(*operations: str) -> float:
        # Every attempt is billed, also one that was repeated.
        attempts: int = sum(store.get(name, {}).get("attempts", 0) for name in operations)
        return attempts / over_s * DAY_S

    return RequestsADay(
        put=a_day("put", "create"),
        list=a_day("list"),
        get=a_day("get", "head"),
        delete=a_day("delete"),
        bytes_written=store.get("bytes_written", 0) / over_s * DAY_S,
        bytes_read=store.get("bytes_read", 0) / over_s * DAY_S,
        over_s=over_s,
    )


def _line(
    book: PriceBook,
    sizes: Mapping[str, list[int]],
    requests: RequestsADay | None,
    own: str | None,
    now_ms: int,
) -> BillLine:
    billed = sum(max(size, book.minimum_object_bytes) for of in sizes.values() for size in of)
    storage = billed / book.gb_bytes * book.storage_gb_month * DAY_S / MONTH_S
    asked = _asked(book, requests) if requests is not None else None
    moved = _moved(book, requests) if requests is not None else None
    today = datetime.fromtimestamp(now_ms / 1000, UTC).date()
    return BillLine(
        provider=book.provider,
        title=book.title,
        region=book.region,
        currency=book.currency,
        as_of=book.as_of.isoformat(),
        storage=storage,
        requests=asked,
        transfer=moved,
        total=storage + (asked or 0.0) + (moved or 0.0),
        here=book.provider == own,
        warning=book.warning(today),
    )


def _asked(book: PriceBook, requests: RequestsADay) -> float:
    return (
        requests.put * book.put_per_1000
        + requests.list * book.list_per_1000
        + requests.get * book.get_per_1000
        + requests.delete * book.delete_per_1000
    ) / 1000


def _moved(book: PriceBook, requests: RequestsADay) -> float:
    written = requests.bytes_written * book.upload_gb
    return (written + requests.bytes_read * book.retrieval_gb) / book.gb_bytes
