"""Where the tail of an SST file begins: all of it that is not data.

A file is its data blocks, then the blocks that the footer's metaindex names (filter, index,
properties), the metaindex and the footer. RocksDB reads them as it opens the file.
Format: RocksDB's `table/format.cc`, version 6 of its block-based table.
"""

import struct
from typing import Final

FOOTER_BYTES: Final = 53
_MAGIC: Final = 0x88E241B785F4CFF7
_VERSION: Final = 6
_FOOTER: Final = struct.Struct("<B4sIII24xIQ")
"""Checksum's kind, mark, checksum, its context, bytes of the metaindex, version, magic number."""
_U32: Final = struct.Struct("<I")
_TRAILER_BYTES: Final = 5
"""After each block: its compression and its checksum."""


def tail_start(end: bytes, size: int) -> int | None:
    """The offset of the tail of a file of this size, by its last bytes.

    None when these are too few, or are not what this release knows of.
    """
    if len(end) < FOOTER_BYTES:
        return None
    *_, metaindex_bytes, version, magic = _FOOTER.unpack_from(end, len(end) - FOOTER_BYTES)
    stop = len(end) - FOOTER_BYTES - _TRAILER_BYTES
    start = stop - metaindex_bytes
    if magic != _MAGIC or version != _VERSION or start < 0:
        return None
    offsets = _offsets(end[start:stop])
    return min(offsets) if offsets and max(offsets) < size else None


def _offsets(metaindex: bytes) -> list[int]:
    """Where the blocks begin that the metaindex names; none for bytes that are no metaindex."""
    offsets: list[int] = []
    try:
        (restarts,) = _U32.unpack_from(metaindex, len(metaindex) - _U32.size)
        end, position = len(metaindex) - _U32.size * (restarts + 1), 0
        while position < end:
            _, position = _varint(metaindex, position)  # bytes shared with the name before
            name_bytes, position = _varint(metaindex, position)
            value_bytes, position = _varint(metaindex, position)
            position += name_bytes
            offset, _ = _varint(metaindex, position)
            position += value_bytes
            offsets.append(offset)
    except (struct.error, IndexError):
        return []
    return offsets


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """A number of several bytes, seven bits in each, and the position after it."""
    number = shift = 0
    while True:
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
        shift += 7
