"""Index documents: where the changelogs of one batch, or of a window of batches, lie.

Invariants: equal documents are equal text, whatever the order of their entries; a document that
is read is whole: every piece lies in one of its segments, every changelog is of its batches.
Format: docs/internals/format.md, "Spark checkpoints".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import msgspec

from tidelog.errors import InvariantError
from tidelog.spark.format.damage import REBUILD_INDEX, damaged, spark_action
from tidelog.spark.format.names import MAX_INT, MAX_LONG, ChangelogName
from tidelog.storage.document import FORMAT_VERSION, open_document, seal_document

_Int = Annotated[int, msgspec.Meta(ge=0, le=MAX_INT)]
_Long = Annotated[int, msgspec.Meta(ge=0, le=MAX_LONG)]


class ChangelogPiece(NamedTuple):
    """`length` bytes (a whole block) from byte `offset` of a segment, named without directory."""

    segment: str
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One changelog: `bytes` of content in pieces, in order."""

    name: ChangelogName
    bytes: int
    pieces: tuple[ChangelogPiece, ...]


@dataclass(frozen=True, slots=True)
class IndexDocument:
    """The changelogs of the batches [first, last]; `segments` gives the length in bytes of every
    object that pieces name.
    """

    first: int
    last: int
    segments: Mapping[str, int]
    entries: tuple[IndexEntry, ...]


class _Segment(msgspec.Struct, array_like=True):
    name: str
    bytes: _Long


class _Piece(msgspec.Struct, array_like=True):
    segment: _Int
    offset: _Long
    length: _Int


class _Changelog(msgspec.Struct, array_like=True):
    directory: str
    version: _Long
    id: str
    bytes: _Long
    pieces: Annotated[list[_Piece], msgspec.Meta(min_length=1)]


class _Body(msgspec.Struct):
    first: _Long
    last: _Long
    segments: list[_Segment]
    changelogs: list[_Changelog]
    kind: Literal["spark-index"]
    format: int


def write_index(document: IndexDocument) -> str:
    """One line, without the end of line; raises InvariantError if a piece lies in a segment whose
    length is not given.
    """
    segments = sorted(document.segments.items())
    numbers = {name: number for number, (name, _) in enumerate(segments)}
    entries = sorted(document.entries, key=lambda entry: entry.name.sort_key)
    body = _Body(
        format=FORMAT_VERSION,
        kind="spark-index",
        first=document.first,
        last=document.last,
        segments=[_Segment(name, size) for name, size in segments],
        changelogs=[_changelog(entry, numbers) for entry in entries],
    )
    return seal_document(body).decode().rstrip("\n")


def read_index(line: str, where: str) -> IndexDocument:
    """Raises CorruptObjectError and FormatVersionError, both naming `where`."""
    with spark_action(REBUILD_INDEX):
        body = open_document(line.encode(errors="replace"), where, _Body)
    entries = tuple(_entry(changelog, body.segments, where) for changelog in body.changelogs)
    for entry in entries:
        if not body.first < entry.name.version <= body.last + 1:
            expected = f"changelogs of batches {body.first} to {body.last}"
            raise damaged(where, expected, entry.name.path, REBUILD_INDEX)
    segments = {segment.name: segment.bytes for segment in body.segments}
    return IndexDocument(body.first, body.last, segments, entries)


def _changelog(entry: IndexEntry, numbers: Mapping[str, int]) -> _Changelog:
    missing = [piece.segment for piece in entry.pieces if piece.segment not in numbers]
    if missing:
        raise InvariantError(
            f"index entry of {entry.name.path}",
            expected="the length of every segment it names",
            found=f"none of {missing[0]}",
            action="report this as a bug of the index's writer",
        )
    pieces = [_Piece(numbers[piece.segment], piece.offset, piece.length) for piece in entry.pieces]
    name = entry.name
    return _Changelog(name.directory, name.version, name.id, entry.bytes, pieces)


def _entry(changelog: _Changelog, segments: Sequence[_Segment], where: str) -> IndexEntry:
    name = ChangelogName.of(changelog.directory, changelog.version, changelog.id)
    if name is None:
        found = f"{changelog.directory}, {changelog.version}, {changelog.id}"
        raise damaged(where, "the name of a changelog", found, REBUILD_INDEX)
    outside = [piece for piece in changelog.pieces if piece.segment >= len(segments)]
    if outside:
        expected = f"pieces in one of {len(segments)} segments"
        raise damaged(where, expected, f"{outside[0]} of {name.path}", REBUILD_INDEX)
    pieces = tuple(
        ChangelogPiece(segments[piece.segment].name, piece.offset, piece.length)
        for piece in changelog.pieces
    )
    return IndexEntry(name, changelog.bytes, pieces)
