"""Segments of a Spark checkpoint, which the plug-in writes: read by their footers, and block by
block.

Invariants: a footer is used only after its checksum has passed; a block says itself whose bytes it
holds, under its own checksum, so the bytes of another changelog or piece are never returned,
whatever an index says. Format: docs/internals/format.md, "Segments", "Payload of kind 3" and "Spark
checkpoints".
"""

import base64
import binascii
import struct
from dataclasses import dataclass
from typing import Annotated, Final, TypeVar

import msgspec

from tidelog.changelog import segment as container
from tidelog.changelog.block import CODEC_NONE, HEADER, Block, BlockKind, corrupt, open_block
from tidelog.changelog.segment import TRAILER_BYTES, Segment, SegmentAuthor
from tidelog.errors import FormatVersionError
from tidelog.spark.format.damage import damaged, spark_action
from tidelog.spark.format.names import IN_COMMIT, MAX_INT, ChangelogName
from tidelog.storage.port import ObjectStore

E = TypeVar("E", bound=container.Entry)

TAIL_BYTES: Final = 64 << 10
"""How much of a segment's end the first request for its footer reads."""

_LINES_BEFORE: Final = 3
"""Lines of a commit before its segment: Spark's two, and the index."""

_Int = Annotated[int, msgspec.Meta(ge=0, le=MAX_INT)]
_NAME_LENGTH: Final = struct.Struct("<H")
_NUMBERS: Final = struct.Struct("<II")


def framing_bytes(name: ChangelogName) -> int:
    """Bytes of a block that are not content: header, and what the payload says of itself."""
    return HEADER.size + _NAME_LENGTH.size + len(name.path.encode()) + _NUMBERS.size


def read_content(block: bytes, name: ChangelogName, piece: int, pieces: int, where: str) -> bytes:
    """The bytes of one piece of a changelog, from exactly its block.

    Raises CorruptObjectError (damaged, truncated, or another changelog's or piece's block) and
    FormatVersionError; `where` names object and place.
    """
    with spark_action(location=where):
        content_block = open_block(block, 0, where)
    if content_block.size != len(block):
        raise damaged(where, f"a block of {len(block)} bytes", f"one of {content_block.size}")
    return _content(content_block, name, piece, pieces, where)


def _content(block: Block, name: ChangelogName, piece: int, pieces: int, where: str) -> bytes:
    """The content of a block whose checksum has passed; raises as `read_content`."""
    if block.kind is not BlockKind.SPARK_CHANGELOG or block.codec != CODEC_NONE:
        raise FormatVersionError(
            f"object {where}",
            expected="a block of kind SPARK_CHANGELOG, codec 0",
            found=f"{block.kind.name}, codec {block.codec}",
            action="use the tidelog release that wrote it, or a newer one; nothing was changed",
        )
    payload = block.payload()
    name_at = _NAME_LENGTH.size
    (name_bytes,) = _NAME_LENGTH.unpack_from(payload) if len(payload) >= name_at else (0,)
    content_at = name_at + name_bytes + _NUMBERS.size
    if content_at > len(payload):
        raise damaged(where, "a name and two numbers", f"{len(payload)} bytes of payload")
    path = payload[name_at : name_at + name_bytes].decode(errors="replace")
    piece_numbers = _NUMBERS.unpack_from(payload, content_at - _NUMBERS.size)
    if (block.first, path, *piece_numbers) != (name.version, name.path, piece, pieces):
        raise damaged(
            where,
            f"piece {piece} of {name.path}, {_of(pieces)}",
            f"piece {piece_numbers[0]} of {path}, {_of(piece_numbers[1])}",
        )
    return payload[content_at:]


def _of(pieces: int) -> str:
    return f"the last of {pieces}" if pieces else "more to follow"


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
        footer_entries = container.decode_footer(footer, trailer, where, SparkEntry)
        entries = tuple(_footer_entry(entry, where) for entry in footer_entries)
    for entry in entries:
        location = f"{where} at byte {entry.offset}"
        with spark_action():
            block = open_block(data, entry.offset, where)
        _content(block, entry.name, entry.piece, entry.pieces, location)
    return segment.author, entries


def segment_in_commit(commit: bytes, where: str) -> bytes:
    """The segment in the fourth line of the commit `where`; raises CorruptObjectError."""
    line = b"".join(commit.split(b"\n", _LINES_BEFORE)[_LINES_BEFORE:]).strip()
    try:
        segment = base64.b64decode(line, validate=True)
    except binascii.Error as cause:
        raise damaged(f"object {where}", "a segment in Base64 on line 4", str(cause)) from cause
    if not segment:
        raise damaged(f"object {where}", "a segment in Base64 on line 4", "no such line")
    return segment


async def read_segment(
    store: ObjectStore, name: str, start: int = 0, length: int | None = None
) -> bytes:
    """Bytes of a segment by the name of its object, or of the commit that it lies in.

    Raises as `segment_in_commit`, and what the store raises.
    """
    if not name.startswith(IN_COMMIT):
        return await store.get(name, start, length)
    segment = segment_in_commit(await store.get(name), name)
    return segment[start:] if length is None else segment[start : start + length]


async def read_footer_at(store: ObjectStore, where: str, size: int) -> tuple[FooterEntry, ...]:
    """The footer of a stored segment of a query; raises as `stored_entries`."""
    with spark_action():
        footer_entries = await stored_entries(store, where, size, SparkEntry)
        return tuple(_footer_entry(entry, where) for entry in footer_entries)


async def stored_entries(
    store: ObjectStore, where: str, size: int, entry: type[E]
) -> tuple[E, ...]:
    """The footer of the stored segment `where` of `size` bytes: one request, or two for a long
    footer.

    Raises CorruptObjectError and FormatVersionError, and what the store raises.
    """
    tail_at = max(size - TAIL_BYTES, 0)
    tail = await read_segment(store, where, tail_at, size - tail_at)
    if len(tail) < size - tail_at:
        actual = f"the end of the object at byte {tail_at + len(tail)} (truncated)"
        raise corrupt(where, tail_at, f"a segment of {size} bytes", actual)
    trailer = container.read_trailer(tail[-TRAILER_BYTES:], size, where)
    if trailer.footer_at >= tail_at:
        footer = tail[trailer.footer_at - tail_at : -TRAILER_BYTES]
    else:
        footer = await read_segment(store, where, trailer.footer_at, trailer.footer_bytes)
    return container.decode_footer(footer, trailer, where, entry)


def _footer_entry(entry: SparkEntry, where: str) -> FooterEntry:
    number, slash, store = entry.operator.partition("/")
    directory = f"{number}/{entry.subtask}{slash}{store}"
    name = ChangelogName.of(directory, entry.first, entry.id)
    if name is None or entry.kind != BlockKind.SPARK_CHANGELOG:
        raise damaged(where, "a footer index of Spark's changelogs", f"that of {entry}")
    return FooterEntry(name, entry.offset, entry.length, entry.piece, entry.pieces)
