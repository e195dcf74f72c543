"""Blocks of kind 3, spark-changelog: one piece of one changelog file each.

Invariant: a block says itself whose bytes it holds, under its own checksum, so the
bytes of another changelog or piece are never returned, whatever an index says.
Format: docs/internals/format.md, "Payload of kind 3".
"""

import struct
from dataclasses import dataclass
from typing import Final

from tidelog.changelog.block import (
    CODEC_NONE,
    HEADER,
    Block,
    BlockKind,
    open_block,
)
from tidelog.errors import FormatVersionError
from tidelog.spark.format.damage import damaged, spark_action
from tidelog.spark.format.names import ChangelogName

_NAME_LENGTH: Final = struct.Struct("<H")
_NUMBERS: Final = struct.Struct("<II")


@dataclass(frozen=True, slots=True)
class OpenedPiece:
    """What a block says of itself; `pieces` is 0 unless it is the changelog's last piece."""

    version: int
    path: str
    piece: int
    pieces: int
    content: bytes


def framing_bytes(name: ChangelogName) -> int:
    """Bytes of a block that are not content: header, and what the payload says of itself."""
    return HEADER.size + _NAME_LENGTH.size + len(name.path.encode()) + _NUMBERS.size


def read_content(block: bytes, name: ChangelogName, piece: int, pieces: int, where: str) -> bytes:
    """The bytes of one piece of a changelog, from exactly its block.

    Raises CorruptObjectError (damaged, truncated, or another changelog's or piece's block) and
    FormatVersionError; `where` names object and place.
    """
    with spark_action(place=where):
        opened = open_block(block, 0, where)
    if opened.size != len(block):
        raise damaged(where, f"a block of {len(block)} bytes", f"one of {opened.size}")
    return checked(opened_piece(opened, where), name, piece, pieces, where).content


def opened_piece(block: Block, where: str) -> OpenedPiece:
    """What a block whose checksum has passed says of itself; raises as `read_content`."""
    if block.kind is not BlockKind.SPARK_CHANGELOG or block.codec != CODEC_NONE:
        expected = "a block of kind SPARK_CHANGELOG, codec 0"
        raise FormatVersionError(
            f"object {where}",
            expected=expected,
            found=f"{block.kind.name}, codec {block.codec}",
            action="use the tidelog release that wrote it, or a newer one; nothing was changed",
        )
    payload = block.payload()
    name_at = _NAME_LENGTH.size
    (name_bytes,) = _NAME_LENGTH.unpack_from(payload) if len(payload) >= name_at else (0,)
    content_at = name_at + name_bytes + _NUMBERS.size
    if content_at > len(payload):
        raise damaged(where, "a name and two numbers", f"{len(payload)} bytes of payload")
    piece, pieces = _NUMBERS.unpack_from(payload, content_at - _NUMBERS.size)
    path = payload[name_at : name_at + name_bytes].decode(errors="replace")
    return OpenedPiece(block.first, path, piece, pieces, payload[content_at:])


def checked(
    opened: OpenedPiece, name: ChangelogName, piece: int, pieces: int, where: str
) -> OpenedPiece:
    """The same piece; raises CorruptObjectError unless it is the one that is named."""
    expected = name.version, name.path, piece, pieces
    if (opened.version, opened.path, opened.piece, opened.pieces) != expected:
        raise damaged(
            where,
            f"piece {piece} of {name.path}, {_of(pieces)}",
            f"piece {opened.piece} of {opened.path}, {_of(opened.pieces)}",
        )
    return opened


def _of(pieces: int) -> str:
    return f"the last of {pieces}" if pieces else "more to follow"
