"""Index documents: where the changelogs of one batch, or of a window of batches, lie.

Invariant: a document that is read is whole: every piece lies in one of its segments, every
changelog is of its batches. Format: docs/internals/format.md, "Spark checkpoints".
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Annotated, Literal, NamedTuple

import msgspec

from tidelog.options.units import plural
from tidelog.spark.format.damage import INDEX_LOST, damaged, spark_action
from tidelog.spark.format.names import MAX_INT, MAX_LONG, ChangelogName
from tidelog.storage.document import open_document

_Int = Annotated[int, msgspec.Meta(ge=0, le=MAX_INT)]
_Long = Annotated[int, msgspec.Meta(ge=0, le=MAX_LONG)]


class ChangelogPiece(NamedTuple):
    """`length` bytes (a whole block) from byte `offset` of a segment, which is named without
    directory, or by the commit that it lies in.
    """

    segment: str
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One changelog: `bytes` of content in pieces, in order."""

    name: ChangelogName
    bytes: int
    pieces: tuple[ChangelogPiece, ...]


def segments_of(entries: Iterable[IndexEntry]) -> set[str]:
    """The segments that these changelogs have pieces in."""
    segments: set[str] = set()
    for entry in entries:
        segments.update(map(attrgetter("segment"), entry.pieces))
    return segments


@dataclass(frozen=True, slots=True)
class IndexDocument:
    """The changelogs of the batches [first, last], and the bytes of the segments they are in."""

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


def read_index(line: str, where: str) -> IndexDocument:
    """Raises CorruptObjectError and FormatVersionError, both naming `where`."""
    with spark_action(INDEX_LOST):
        body = open_document(line.encode(errors="replace"), where, _Body)
    entries = tuple(_entry(changelog, body.segments, where) for changelog in body.changelogs)
    for entry in entries:
        if not body.first < entry.name.version <= body.last + 1:
            expected = f"changelogs of batches {body.first} to {body.last}"
            raise damaged(where, expected, entry.name.path, INDEX_LOST)
    segments = {segment.name: segment.bytes for segment in body.segments}
    return IndexDocument(body.first, body.last, segments, entries)


def _entry(changelog: _Changelog, segments: Sequence[_Segment], where: str) -> IndexEntry:
    name = ChangelogName.of(changelog.directory, changelog.version, changelog.id)
    if name is None:
        actual = f"{changelog.directory}, {changelog.version}, {changelog.id}"
        raise damaged(where, "the name of a changelog", actual, INDEX_LOST)
    outside = [piece for piece in changelog.pieces if piece.segment >= len(segments)]
    if outside:
        expected = f"pieces in one of {plural(len(segments), 'segment')}"
        raise damaged(where, expected, f"{outside[0]} of {name.path}", INDEX_LOST)
    pieces = tuple(
        ChangelogPiece(segments[piece.segment].name, piece.offset, piece.length)
        for piece in changelog.pieces
    )
    return IndexEntry(name, changelog.bytes, pieces)
