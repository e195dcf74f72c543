"""Segments of Spark checkpoints, written as the plug-in writes them.

Invariant: equal pieces give equal bytes; the golden files hold both writers to that.
"""

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from tidelog.changelog import segment as container
from tidelog.changelog.block import BlockKind, SealedBlock, seal_opaque
from tidelog.changelog.segment import SegmentAuthor
from tidelog.errors import InvariantError
from tidelog.ids import SeqNo
from tidelog.spark.format.index import ChangelogPiece, IndexDocument
from tidelog.spark.format.names import DEFAULT_STORE, ChangelogName
from tidelog.spark.format.segment import SparkEntry
from tidelog.storage.document import checksum

_NAME_LENGTH: Final = struct.Struct("<H")
_NUMBERS: Final = struct.Struct("<II")
_MAX_NAME: Final = 0xFFFF


class NewPiece(NamedTuple):
    """A piece to be stored; `pieces` is their number if it is the changelog's last, else 0."""

    name: ChangelogName
    piece: int
    pieces: int
    content: bytes


def seal_piece(name: ChangelogName, piece: int, pieces: int, content: bytes) -> SealedBlock:
    """The block of a piece; `pieces` is their number if this is the last one, else 0.

    Raises InvariantError for numbers that do not fit each other and for a name above 65535 bytes.
    """
    path = name.path.encode()
    if len(path) > _MAX_NAME or piece < 0 or pieces not in (0, piece + 1):
        raise InvariantError(
            f"block of {name.path}",
            expected=f"a name of at most {_MAX_NAME} bytes, and 0 or piece + 1 pieces",
            found=f"{len(path)} bytes, piece {piece} of {pieces}",
            action="report this as a bug of the writer",
        )
    payload = _NAME_LENGTH.pack(len(path)) + path + _NUMBERS.pack(piece, pieces) + content
    # Spark has compressed the content already.
    return seal_opaque(
        BlockKind.SPARK_CHANGELOG, payload, 1, SeqNo(name.version), compression_level=0
    )


def pack_pieces(
    author: SegmentAuthor, segment: str, pieces: Iterable[NewPiece]
) -> tuple[bytes, list[ChangelogPiece]]:
    """The bytes of a segment, and where in it the pieces lie, in the order given.

    Raises InvariantError for a process token above 16 characters, and as `seal_piece`.
    """
    parts = [container.header_bytes(author)]
    offset = len(parts[0])
    entries: list[SparkEntry] = []
    for new in pieces:
        block = seal_piece(*new)
        entries.append(_entry(new, block, offset))
        parts.append(block.data)
        offset += block.size
    parts += container.footer_and_trailer(offset, entries)
    places = [ChangelogPiece(segment, entry.offset, entry.length) for entry in entries]
    return b"".join(parts), places


def _entry(new: NewPiece, block: SealedBlock, offset: int) -> SparkEntry:
    name = new.name
    return SparkEntry(
        operator=str(name.operator)
        if name.store == DEFAULT_STORE
        else f"{name.operator}/{name.store}",
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


def write_index(document: IndexDocument) -> str:
    """An index document as the plug-in stores it: one line, without the end of line."""
    segments = sorted(document.segments)
    entries = sorted(document.entries, key=lambda entry: entry.name.sort_key)
    body = {
        "changelogs": [
            (
                *(entry.name.directory, entry.name.version, entry.name.id, entry.bytes),
                [(segments.index(p.segment), p.offset, p.length) for p in entry.pieces],
            )
            for entry in entries
        ],
        "first": document.first,
        "format": 1,
        "kind": "spark-index",
        "last": document.last,
        "segments": [(name, document.segments[name]) for name in segments],
    }
    text = msgspec.json.encode(body)
    return f'{{"body":{text.decode()},"crc32c":"{checksum(text)}"}}'
