"""Segments: one stored object with the blocks of many subtasks.

Invariants: a segment is written once and never changes; the blocks of one subtask lie in one
contiguous range, in order of their sequence numbers; every byte is under a checksum.
Format: docs/internals/format.md, "Segments".
"""

import struct
from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

import google_crc32c
import msgspec

from tidelog.changelog.block import Block, SealedBlock, check_magic, corrupt, open_block
from tidelog.errors import InvariantError
from tidelog.ids import Generation, KeyGroup, SeqNo
from tidelog.options.units import plural

MAGIC: Final = b"TLSG"
TRAILER_MAGIC: Final = b"TLSE"
VERSION: Final = 1
PROCESS_BYTES: Final = 16

_HEADER: Final = struct.Struct("<4sB3xQQ16sI")
_TRAILER: Final = struct.Struct("<QI3xBI4s")
HEADER_BYTES: Final = _HEADER.size
"""Length of a segment's header, which names its author."""
TRAILER_BYTES: Final = _TRAILER.size
"""Length of a segment's trailer, which says where the footer index is."""
_HEADER_CRC_AT: Final = _HEADER.size - 4
_TRAILER_CRC_AT: Final = _TRAILER.size - 8

T = TypeVar("T")


class LogRange(msgspec.Struct, frozen=True, array_like=True):
    """Changes [first, end) of one subtask: `length` bytes of whole blocks from byte `offset` of
    object `segment`. Key groups outside [key_group_min, key_group_max] do not occur in it.
    """

    segment: str
    offset: int
    length: int
    first: SeqNo
    end: SeqNo
    key_group_min: KeyGroup
    key_group_max: KeyGroup


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One block in the footer index of a segment."""

    operator: str
    subtask: int
    kind: int
    offset: int
    length: int
    first: SeqNo
    count: int
    key_group_min: KeyGroup
    key_group_max: KeyGroup

    def __str__(self) -> str:
        return (
            f"a block of kind {self.kind} of operator {self.operator!r}, subtask {self.subtask}, "
            f"with {plural(self.length, 'byte')} from byte {self.offset}, "
            f"{plural(self.count, 'change')} from number {self.first}, and key groups "
            f"{self.key_group_min} to {self.key_group_max}"
        )


class SegmentAuthor(msgspec.Struct, frozen=True):
    """Who wrote a segment: tells our own object from another's when a name is taken."""

    generation: Generation
    process: str
    """ASCII token of the writing process, at most 16 characters."""
    counter: int


class BlockGroup(msgspec.Struct, frozen=True):
    """The blocks of one subtask, in order and without a gap."""

    operator: str
    subtask: int
    blocks: Sequence[SealedBlock]


class PackedSegment(msgspec.Struct, frozen=True):
    """A segment's bytes, and the range of each group in the order they were given."""

    data: bytes
    ranges: tuple[LogRange, ...]


class Segment(msgspec.Struct, frozen=True):
    """What a whole segment says of itself."""

    author: SegmentAuthor
    entries: tuple[Entry, ...]


class Trailer(msgspec.Struct, frozen=True):
    """Where the footer index of a segment lies, and its checksum with the trailer's `checked`."""

    footer_at: int
    footer_bytes: int
    crc: int
    checked: bytes


def pack(author: SegmentAuthor, name: str, groups: Iterable[BlockGroup]) -> PackedSegment:
    """Lay out a segment `name`; raises InvariantError for an empty group or a gap in numbers."""
    parts = [header_bytes(author)]
    offset = len(parts[0])
    entries: list[Entry] = []
    ranges: list[LogRange] = []
    for group in groups:
        _check_contiguous(group)
        start = offset
        for block in group.blocks:
            entries.append(_entry(group.operator, group.subtask, block, offset))
            parts.append(block.data)
            offset += block.size
        ranges.append(_range(name, start, offset, group.blocks))
    parts += footer_and_trailer(offset, entries)
    return PackedSegment(b"".join(parts), tuple(ranges))


def read_footer(data: bytes, name: str) -> Segment:
    """Author and index of a whole segment, all of whose checksums hold.

    Raises CorruptObjectError (truncated, damaged) and FormatVersionError (written by a newer
    release).
    """
    author = read_author(data, name)
    trailer_at = max(len(data) - TRAILER_BYTES, HEADER_BYTES)
    trailer = read_trailer(data[trailer_at:], len(data), name)
    entries = decode_footer(data[trailer.footer_at : trailer_at], trailer, name, Entry)
    _check_blocks(data, name, entries, trailer.footer_at)
    return Segment(author, entries)


def read_trailer(trailer: bytes, size: int, name: str) -> Trailer:
    """What the last `TRAILER_BYTES` bytes of a segment of `size` bytes say; raises
    CorruptObjectError and FormatVersionError.
    """
    trailer_at = size - TRAILER_BYTES
    if trailer_at < HEADER_BYTES or len(trailer) < TRAILER_BYTES:
        raise corrupt(name, size, "a segment trailer", "the end of the object (truncated)")
    footer_at, length, version, crc, magic = _TRAILER.unpack(trailer)
    check_magic(name, trailer_at, (magic, version), (TRAILER_MAGIC, VERSION))
    if footer_at < HEADER_BYTES or footer_at + length != trailer_at:
        raise corrupt(name, trailer_at, "a footer that ends here", f"{length} from {footer_at}")
    return Trailer(footer_at, length, crc, trailer[:_TRAILER_CRC_AT])


def decode_footer(footer: bytes, trailer: Trailer, name: str, entry: type[T]) -> tuple[T, ...]:
    """The entries of a footer index, whose checksum holds; raises CorruptObjectError."""
    checksum = google_crc32c.extend(google_crc32c.value(footer), trailer.checked)
    if checksum != trailer.crc:
        offset, expected = trailer.footer_at, f"footer CRC32C {trailer.crc:08x}"
        raise corrupt(name, offset, expected, f"{checksum:08x}")
    try:
        return msgspec.msgpack.decode(footer, type=tuple[entry, ...])  # type: ignore[valid-type]
    except (msgspec.MsgspecError, UnicodeDecodeError) as cause:
        raise corrupt(name, trailer.footer_at, "a footer index", str(cause)) from cause


def read_author(data: bytes, name: str) -> SegmentAuthor:
    """The author, from a segment's first `HEADER_BYTES` bytes or more; raises CorruptObjectError
    and FormatVersionError.
    """
    if len(data) < HEADER_BYTES:
        raise corrupt(name, 0, "a segment header", f"{len(data)} bytes (truncated)")
    magic, version, generation, counter, process, crc = _HEADER.unpack_from(data)
    check_magic(name, 0, (magic, version), (MAGIC, VERSION))
    checksum = google_crc32c.value(data[:_HEADER_CRC_AT])
    if checksum != crc:
        raise corrupt(name, 0, f"header CRC32C {crc:08x}", f"{checksum:08x}")
    return SegmentAuthor(generation, process.rstrip(b"\0").decode("ascii", "replace"), counter)


def header_bytes(author: SegmentAuthor) -> bytes:
    """The first bytes of a segment; raises InvariantError for a process token that is too long."""
    process = author.process.encode("ascii")
    if len(process) > PROCESS_BYTES:
        raise InvariantError(
            f"process token {author.process}",
            expected=f"at most {PROCESS_BYTES} characters",
            found=f"{len(process)}",
            action="report this as a bug of the uploader",
        )
    header = _HEADER.pack(MAGIC, VERSION, author.generation, author.counter, process, 0)
    header = header[:_HEADER_CRC_AT]
    return header + struct.pack("<I", google_crc32c.value(header))


def footer_and_trailer(offset: int, entries: Sequence[Entry]) -> tuple[bytes, bytes]:
    """Footer index and trailer of a segment whose blocks end at byte `offset`."""
    footer = msgspec.msgpack.encode(entries)
    trailer = _TRAILER.pack(offset, len(footer), VERSION, 0, TRAILER_MAGIC)[:_TRAILER_CRC_AT]
    crc = google_crc32c.value(footer + trailer)
    return footer, trailer + struct.pack("<I4s", crc, TRAILER_MAGIC)


def _entry(operator: str, subtask: int, block: SealedBlock | Block, offset: int) -> Entry:
    numbers = block.first, block.count, block.key_group_min, block.key_group_max
    return Entry(operator, subtask, block.kind, offset, block.size, *numbers)


def _range(name: str, start: int, end: int, blocks: Sequence[SealedBlock]) -> LogRange:
    return LogRange(
        segment=name,
        offset=start,
        length=end - start,
        first=blocks[0].first,
        end=blocks[-1].end,
        key_group_min=min(block.key_group_min for block in blocks),
        key_group_max=max(block.key_group_max for block in blocks),
    )


def _check_contiguous(group: BlockGroup) -> None:
    firsts = [block.first for block in group.blocks]
    ends = [block.end for block in group.blocks]
    if not firsts or firsts[1:] != ends[:-1]:
        raise InvariantError(
            f"log of operator {group.operator}, subtask {group.subtask}",
            expected="one block or more, without a gap between them",
            found=f"blocks from {firsts} to {ends}",
            action="report this as a bug of the uploader",
        )


def _check_blocks(data: bytes, name: str, entries: Sequence[Entry], footer_at: int) -> None:
    offset = HEADER_BYTES
    for entry in entries:
        block = open_block(data, offset, name)
        actual = _entry(entry.operator, entry.subtask, block, offset)
        if actual != entry:
            raise corrupt(name, offset, f"{entry}, as its footer says", f"{actual}")
        offset += block.size
    if offset != footer_at:
        raise corrupt(name, offset, "the footer index", "bytes it does not name")
