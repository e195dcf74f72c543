"""Requests that the file system counted, by kind of request and class of file.

Invariant: the difference of two counts is what happened between them, nothing else.
"""

from collections.abc import Mapping
from typing import NamedTuple

Counts = Mapping[tuple[str, str], "Sum"]
"""(kind of request, class of file) -> how many, and their bytes."""


class Sum(NamedTuple):
    """Requests of one kind to one class of files."""

    requests: int
    bytes: int


_NONE = Sum(0, 0)


def parse_counts(text: str) -> Counts:
    """Lines of `kind class count bytes`."""
    fields = [line.split(" ") for line in text.splitlines()]
    return {(kind, file): Sum(int(count), int(size)) for kind, file, count, size in fields}


def difference(after: Counts, before: Counts) -> Counts:
    """What happened in between."""
    found = {}
    for key, total in after.items():
        then = before.get(key, _NONE)
        if total.requests > then.requests:
            found[key] = Sum(total.requests - then.requests, total.bytes - then.bytes)
    return found


def requests(counts: Counts, kind: str | None = None) -> int:
    """All of them, or those of one kind."""
    return sum(found.requests for (of, _), found in counts.items() if kind in (None, of))


def transferred(counts: Counts, kind: str) -> int:
    """Bytes of the requests of one kind."""
    return sum(found.bytes for (of, _), found in counts.items() if of == kind)


def by_kind(counts: Counts, batches: int) -> dict[str, dict[str, float]]:
    """Requests per batch: kind -> class of file -> number."""
    kinds: dict[str, dict[str, float]] = {}
    for (kind, file), found in sorted(counts.items()):
        kinds.setdefault(kind, {})[file] = round(found.requests / batches, 3)
    return kinds
