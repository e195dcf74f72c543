"""Segments of a Spark checkpoint, which the plug-in writes: read by their footers.

Invariant: a footer is used only after its checksum has passed.
Format: docs/internals/format.md, "Segments" and "Spark checkpoints".
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Final, TypeVar

import msgspec

from tidelog.changelog import segment as container
from tidelog.changelog.block import BlockKind, corrupt, open_block
from tidelog.changelog.segment import TRAILER_BYTES, Segment, SegmentAuthor
from tidelog.spark.format.block import checked, opened_piece
from tidelog.spark.format.damage import damaged, spark_action
from tidelog.spark.format.names import MAX_INT, ChangelogName
from tidelog.storage.port import ObjectStore

E = TypeVar("E", bound=container.Entry)

TAIL_BYTES: Final = 64 << 10
"""How much of a segment's end the first request for its footer reads."""

_Int = Annotated[int, msgspec.Meta(ge=0, le=MAX_INT)]


class SparkEntry(container.Entry, frozen=True, array_like=True):
    """A footer entry with the fields of kind 3."""

    id: str
    piece: _Int
    pieces: _Int


@dataclass(frozen=True, slots=True)
class FooterEntry:
    """One block in a segment's footer; offset and length in bytes."""

    name: ChangelogName
    offset: int
    length: int
    piece: int
    pieces: int
    """The number of pieces if this is the changelog's last one, else 0."""


def read_footer(data: bytes, where: str) -> tuple[SegmentAuthor, tuple[FooterEntry, ...]]:
    """Author and footer of a whole segment, all of whose bytes are checked.

    Raises CorruptObjectError and FormatVersionError, both naming `where`.
    """
    with spark_action():
        segment: Segment = container.read_footer(data, where)
        trailer = container.read_trailer(data[-TRAILER_BYTES:], len(data), where)
        footer = data[trailer.footer_at : -TRAILER_BYTES]
        found = container.decode_footer(footer, trailer, where, SparkEntry)
        entries = _footer_entries(found, where)
    for entry in entries:
        place = f"{where} at byte {entry.offset}"
        with spark_action():
            opened = open_block(data, entry.offset, where)
        block = opened_piece(opened, place)
        checked(block, entry.name, entry.piece, entry.pieces, place)
    return segment.author, entries


async def read_footer_at(store: ObjectStore, where: str, size: int) -> tuple[FooterEntry, ...]:
    """The footer of a stored segment of a query; raises as `stored_entries`."""
    with spark_action():
        return _footer_entries(await stored_entries(store, where, size, SparkEntry), where)


async def stored_entries(
    store: ObjectStore, where: str, size: int, entry: type[E]
) -> tuple[E, ...]:
    """The footer of the stored segment `where` of `size` bytes: one request, or two for a long
    footer.

    Raises CorruptObjectError and FormatVersionError, and what the store raises.
    """
    tail_at = max(size - TAIL_BYTES, 0)
    tail = await store.get(where, tail_at, size - tail_at)
    if len(tail) < size - tail_at:
        found = f"the end of the object at byte {tail_at + len(tail)} (truncated)"
        raise corrupt(where, tail_at, f"a segment of {size} bytes", found)
    trailer = container.read_trailer(tail[-TRAILER_BYTES:], size, where)
    if trailer.footer_at >= tail_at:
        footer = tail[trailer.footer_at - tail_at : -TRAILER_BYTES]
    else:
        footer = await store.get(where, trailer.footer_at, trailer.footer_bytes)
    return container.decode_footer(footer, trailer, where, entry)


def _footer_entries(entries: Iterable[SparkEntry], where: str) -> tuple[FooterEntry, ...]:
    return tuple(_footer_entry(entry, where) for entry in entries)


def _footer_entry(entry: SparkEntry, where: str) -> FooterEntry:
    number, slash, store = entry.operator.partition("/")
    directory = f"{number}/{entry.subtask}{slash}{store}"
    name = ChangelogName.of(directory, entry.first, entry.id)
    if name is None or entry.kind != BlockKind.SPARK_CHANGELOG:
        raise damaged(where, "a footer index of Spark's changelogs", f"the entry {entry}")
    return FooterEntry(name, entry.offset, entry.length, entry.piece, entry.pieces)
