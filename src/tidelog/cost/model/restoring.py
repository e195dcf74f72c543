"""How long a restore takes, and what it asks of the store.

Invariants: requests are those of `tidelog.runtime.runner` and `tidelog.checkpoint.startup`, some
one after the other, the rest side by side within bounds of the runtime's own. Bytes, then changes:
in a real restore they overlap in part, and opening tables comes on top. How near this is to
restores from the model of a store stands in docs/guides/estimate.md.
"""

from dataclasses import dataclass
from typing import Final

from tidelog.concurrency import AT_ONCE
from tidelog.cost.model.job import Settings, StoreLink
from tidelog.cost.model.usage import MONTH_S, Reads

_SLOT_LISTS: Final = 4
"""Listings of slots: before the take-over, for it, after it and before sinks recover."""
_OBJECT_LISTS: Final = 3
"""Listings of segments, tables and descriptors, side by side with reading descriptors."""
_CHECK_LISTS: Final = _OBJECT_LISTS + 1
"""Listings of one look at what is stored: of each kind of object, and of the slots."""
_PAGE: Final = 1000
"""Names that one LIST brings; each thousand more is one more."""
_GETS: Final = 1
"""The newest slot."""
_FIRST_BLOCK: Final = 3
"""Requests one after the other for the first row: the end of a file, its index, and a block."""
_IN_A_ROW: Final = _SLOT_LISTS + _GETS + 2
"""With them the creation of the own start, and the deletion of the start before it."""


@dataclass(frozen=True, slots=True)
class Objects:
    """What is read of one kind; the bytes are those of all."""

    count: float
    bytes: float


@dataclass(frozen=True, slots=True)
class Fetch:
    """What a restore of one process reads."""

    manifests: Objects
    """Those of the retained checkpoints."""
    described: Objects
    """Descriptors that any retained checkpoint names."""
    files: Objects
    segments: Objects
    changes: float


def restore_s(fetch: Fetch, settings: Settings) -> float:
    """Seconds from a started process until its tables are whole."""
    # Files and segments are fetched at the same time, each kind with requests of its own.
    state = Objects(
        max(fetch.files.count, fetch.segments.count), fetch.files.bytes + fetch.segments.bytes
    )
    return _start_s(fetch, state, settings)


def first_record_s(fetch: Fetch, settings: Settings) -> float:
    """Seconds from a started process to its first record, where it begins before that."""
    needed_s = _FIRST_BLOCK * settings.link.latency_s if fetch.files.count else 0.0
    return _start_s(fetch, fetch.segments, settings) + needed_s


def _start_s(fetch: Fetch, state: Objects, settings: Settings) -> float:
    """Seconds until so much of tables and log is here, and the log is replayed."""
    link = settings.link
    described = Objects(fetch.described.count + _OBJECT_LISTS, fetch.described.bytes)
    return (
        _IN_A_ROW * link.latency_s
        + side_by_side_s(fetch.manifests, AT_ONCE, link)
        + side_by_side_s(described, AT_ONCE, link)
        + side_by_side_s(state, link.requests, link)
        + fetch.changes / settings.materialize.replay_rate
    )


def side_by_side_s(objects: Objects, at_once: int, link: StoreLink) -> float:
    """Seconds until all are transferred, with at most so many requests at a time.

    The first one's latency passes before the link has work. Then either latencies or bytes are
    what takes the time; the last requests take longer than others, as the slowest of 16 does.
    """
    if not objects.count:
        return 0.0
    latencies_s = max(0.0, objects.count - 1) / at_once * link.latency_s
    return link.latency_s + max(latencies_s, objects.bytes / link.bytes_per_s)


def reads(fetch: Fetch, settings: Settings, cycle_s: float) -> Reads:
    """Requests a second of all processes: LISTs at checkpoints, and now and then of all objects."""
    count, size = fetch.manifests.count, fetch.manifests.bytes
    for kind in (fetch.described, fetch.files, fetch.segments):
        count += settings.workers * kind.count
        size += settings.workers * kind.bytes
    restores_per_s = settings.processes * settings.restores_per_month / MONTH_S
    check = 0.0
    if settings.object_check_interval is not None:
        check = settings.processes * (_CHECK_LISTS + count / _PAGE)
        check /= settings.object_check_interval
    return Reads(
        gets=restores_per_s * (_GETS + count),
        lists=restores_per_s * (_SLOT_LISTS + _OBJECT_LISTS) + settings.processes / cycle_s + check,
        bytes=restores_per_s * size,
    )
