"""LZ4 streams as the JVM's LZ4BlockOutputStream frames them, which no other LZ4 tool reads.

Invariants: every block's checksum is verified; a stream without its end mark is damage. A stream
is blocks, and streams may follow each other. A block:

    "LZ4Block" | u8 method | u32 stored | u32 raw length | u32 checksum | bytes    little-endian

where method is 0x10 (bytes as they are) or 0x20 (LZ4) plus a size class, and the checksum is 28
bits of xxHash32 of the raw bytes. A block of no bytes ends a stream.
"""

import struct
from typing import Final

from tidelog.spark.format.damage import damaged
from tidelog.spark.format.xxhash32 import xxhash32

MAGIC: Final = b"LZ4Block"

_HEADER: Final = struct.Struct("<8sBIII")
_AS_THEY_ARE: Final = 0x10
_LZ4: Final = 0x20
_METHOD_BITS: Final = 0xF0
_SEED: Final = 0x9747B28C
_CHECKSUM_BITS: Final = 0x0FFFFFFF
_LONG: Final = 15
_SHORTEST_MATCH: Final = 4


def decompress(data: bytes, where: str) -> bytes:
    """The content of one or more streams; raises CorruptObjectError naming `where`."""
    parts, at, ended = [], 0, False
    while at < len(data):
        part, at = _block(data, at, where)
        ended = not part
        parts.append(part)
    if not ended:
        raise damaged(where, "the end mark of an LZ4 stream", "the end of the bytes (truncated)")
    return b"".join(parts)


def _block(data: bytes, at: int, where: str) -> tuple[bytes, int]:
    """The content of the block at byte `at`, and where the next one starts."""
    start = at + _HEADER.size
    if start > len(data):
        raise damaged(f"{where} at byte {at}", "an LZ4 block header", "the end (truncated)")
    magic, token, stored_bytes, raw_bytes, checksum = _HEADER.unpack_from(data, at)
    end = start + stored_bytes
    if magic != MAGIC or token & _METHOD_BITS not in (_AS_THEY_ARE, _LZ4) or end > len(data):
        found = f"{data[at:start].hex()} and {len(data) - start} bytes"
        raise damaged(f"{where} at byte {at}", "an LZ4 block", found)
    raw = data[start:end]
    if token & _METHOD_BITS == _LZ4:
        try:
            raw = decompress_block(raw)
        except (ValueError, IndexError) as cause:
            raise damaged(f"{where} at byte {start}", "LZ4 sequences", str(cause)) from cause
    found_checksum = xxhash32(raw, _SEED) & _CHECKSUM_BITS if raw else 0
    if len(raw) != raw_bytes or found_checksum != checksum:
        expected = f"{raw_bytes} bytes with xxHash32 {checksum:08x}"
        raise damaged(f"{where} at byte {start}", expected, f"{len(raw)} with {found_checksum:08x}")
    return raw, end


def decompress_block(data: bytes) -> bytes:
    """The content of LZ4 sequences; raises ValueError or IndexError when they are none."""
    out, at = bytearray(), 0
    while True:
        token = data[at]
        literals, at = _length(data, at + 1, token >> 4)
        out += data[at : at + literals]
        at += literals
        if at >= len(data):
            if at > len(data):
                raise ValueError("literals beyond the end")
            return bytes(out)
        distance = data[at] | data[at + 1] << 8
        matched, at = _length(data, at + 2, token & 0xF)
        _copy(out, distance, matched + _SHORTEST_MATCH)


def _length(data: bytes, at: int, nibble: int) -> tuple[int, int]:
    length = nibble
    if nibble == _LONG:
        while data[at] == 0xFF:
            length += 0xFF
            at += 1
        length += data[at]
        at += 1
    return length, at


def _copy(out: bytearray, distance: int, length: int) -> None:
    if not 0 < distance <= len(out):
        raise ValueError(f"a match {distance} bytes before byte {len(out)}")
    source = bytes(out[-distance:])
    # A match may overlap what it writes: then it repeats.
    out += (source * (length // distance + 1))[:length] if distance < length else source[:length]
