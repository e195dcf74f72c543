"""Segments of a Spark checkpoint: written whole, read by their footers.

Invariants: equal pieces give equal bytes; a footer is used only after its checksum has passed.
Format: docs/format.md, "Segments" and "Spark checkpoints".
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Final, NamedTuple

import msgspec

from tidelog.changelog.block import BlockKind, SealedBlock, open_block
from tidelog.dstl import segment as container
from tidelog.dstl.segment import HEADER_BYTES, TRAILER_BYTES, Segment, SegmentAuthor, Trailer
from tidelog.spark.format.block import checked, opened_piece, seal_piece
from tidelog.spark.format.damage import damaged, spark_action
from tidelog.spark.format.index import Piece
from tidelog.spark.format.names import MAX_INT, ChangelogName
from tidelog.storage.port import ObjectStore

TAIL_BYTES: Final = 64 << 10
"""How much of a segment's end the first request for its footer reads."""

_Int = Annotated[int, msgspec.Meta(ge=0, le=MAX_INT)]


class _Entry(container.Entry, frozen=True, array_like=True):
    """A footer entry with the fields of kind 3."""

    id: str
    piece: _Int
    pieces: _Int


class NewPiece(NamedTuple):
    """A piece to be stored; `pieces` is their number if it is the changelog's last, else 0."""

    name: ChangelogName
    piece: int
    pieces: int
    content: bytes


@dataclass(frozen=True, slots=True)
class FooterEntry:
    """One block in a segment's footer; `pieces` as in NewPiece, offset and length in bytes."""

    name: ChangelogName
    offset: int
    length: int
    piece: int
    pieces: int


def pack_pieces(
    author: SegmentAuthor, segment: str, pieces: Iterable[NewPiece]
) -> tuple[bytes, list[Piece]]:
    """The bytes of a segment, and where in it the pieces lie, in the order given.

    Raises InvariantError for a process token above 16 characters, and as `seal_piece`.
    """
    parts = [container.header_bytes(author)]
    offset = len(parts[0])
    entries: list[_Entry] = []
    for new in pieces:
        block = seal_piece(*new)
        entries.append(_entry(new, block, offset))
        parts.append(block.data)
        offset += block.size
    parts += container.footer_and_trailer(offset, entries)
    places = [Piece(segment, entry.offset, entry.length) for entry in entries]
    return b"".join(parts), places


def read_footer(data: bytes, where: str) -> tuple[SegmentAuthor, tuple[FooterEntry, ...]]:
    """Author and footer of a whole segment, all of whose bytes are checked.

    Raises CorruptObjectError and FormatVersionError, both naming `where`.
    """
    with spark_action():
        segment: Segment = container.read_footer(data, where)
        trailer = container.read_trailer(data[-TRAILER_BYTES:], len(data), where)
        entries = _decode(data[trailer.footer_at : -TRAILER_BYTES], trailer, where)
    for entry in entries:
        place = f"{where} at byte {entry.offset}"
        block = opened_piece(open_block(data, entry.offset, where), place)
        checked(block, entry.name, entry.piece, entry.pieces, place)
    return segment.author, entries


async def read_footer_at(store: ObjectStore, where: str, size: int) -> tuple[FooterEntry, ...]:
    """The footer of the stored segment `where` of `size` bytes: one request, or two for a long
    footer.

    Raises CorruptObjectError and FormatVersionError, and what the store raises.
    """
    tail_at = max(size - TAIL_BYTES, 0)
    tail = await store.get(where, tail_at, size - tail_at)
    if size < HEADER_BYTES + TRAILER_BYTES or len(tail) < size - tail_at:
        found = f"{tail_at + len(tail)} bytes (truncated)"
        raise damaged(where, f"a segment of {size} bytes", found)
    with spark_action():
        trailer = container.read_trailer(tail[-TRAILER_BYTES:], size, where)
        if trailer.footer_at >= tail_at:
            footer = tail[trailer.footer_at - tail_at : -TRAILER_BYTES]
        else:
            footer = await store.get(where, trailer.footer_at, trailer.footer_bytes)
        return _decode(footer, trailer, where)


def _decode(footer: bytes, trailer: Trailer, where: str) -> tuple[FooterEntry, ...]:
    entries = container.decode_footer(footer, trailer, where, _Entry)
    return tuple(_footer_entry(entry, where) for entry in entries)


def _footer_entry(entry: _Entry, where: str) -> FooterEntry:
    number, slash, store = entry.operator.partition("/")
    directory = f"{number}/{entry.subtask}{slash}{store}"
    name = ChangelogName.of(directory, entry.first, entry.id)
    if name is None or entry.kind != BlockKind.SPARK_CHANGELOG:
        raise damaged(where, "a footer index of Spark's changelogs", f"the entry {entry}")
    return FooterEntry(name, entry.offset, entry.length, entry.piece, entry.pieces)


def _entry(new: NewPiece, block: SealedBlock, offset: int) -> _Entry:
    return _Entry(
        operator=new.name.operator_id,
        subtask=new.name.partition,
        kind=block.kind,
        offset=offset,
        length=block.size,
        first=block.first,
        count=block.count,
        key_group_min=block.key_group_min,
        key_group_max=block.key_group_max,
        id=new.name.id,
        piece=new.piece,
        pieces=new.pieces,
    )
