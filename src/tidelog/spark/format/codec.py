"""The compression of Spark's changelogs, recognised by their first bytes.

Invariants: what is returned is complete, or damage is reported; a codec that cannot be read is
refused by its name. lz4 is framed as the JVM's `LZ4BlockOutputStream` does, which no LZ4 tool
reads: streams follow each other, a block without bytes ends one, and a block is

    "LZ4Block" | u8 method | u32 stored | u32 raw length | u32 checksum | bytes    little-endian

where the upper half of method is 0x10 (bytes as they are) or 0x20 (LZ4), the lower half the size
class of the stream's blocks, and the checksum is 28 bits of xxHash32 of the raw bytes.
"""

import struct
from typing import Final

import zstandard

from tidelog.errors import ConfigError, optional_library
from tidelog.spark.format.damage import damaged

_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_LZ4_MAGIC: Final = b"LZ4Block"
_REFUSED: Final = {b"\x82SNAPPY\0": "snappy", b"ZV": "lzf"}

_LZ4_HEADER: Final = struct.Struct("<8sBIII")
_AS_THEY_ARE: Final = 0x10
_LZ4: Final = 0x20
_SMALLEST_CLASS: Final = 10
"""Blocks of size class 0 hold up to 2^10 raw bytes, those of each higher class twice as many."""
_SEED: Final = 0x9747B28C
_CHECKSUM_BITS: Final = 0x0FFFFFFF


class UnreadableCodecError(ConfigError):
    """Spark has compressed a changelog in a way that only Spark reads."""


def decompress(data: bytes, where: str) -> tuple[str, bytes]:
    """Name of the codec, `lz4` or `zstd`, and the uncompressed bytes.

    Raises CorruptObjectError (damaged, truncated, no known codec), UnreadableCodecError for
    snappy and lzf, and ConfigError where the libraries for lz4 are not installed.
    """
    if data.startswith(_LZ4_MAGIC):
        return "lz4", _lz4(data, where)
    if data.startswith(_ZSTD_MAGIC):
        return "zstd", _zstd(data, where)
    for magic, codec in _REFUSED.items():
        if data.startswith(magic):
            raise UnreadableCodecError(
                where,
                expected="a changelog compressed with lz4 or zstd",
                found=codec,
                action="read it with Spark; to have changelogs that tidelog reads, set "
                "spark.sql.streaming.stateStore.compression.codec=lz4 in a new query",
            )
    raise damaged(where, "a changelog compressed with lz4 or zstd", data[:8].hex() or "no bytes")


def _zstd(data: bytes, where: str) -> bytes:
    parts = []
    while data:
        frame = zstandard.ZstdDecompressor().decompressobj()
        try:
            parts.append(frame.decompress(data))
        except zstandard.ZstdError as cause:
            raise damaged(where, "a zstd frame", str(cause)) from cause
        if not frame.eof:
            raise damaged(where, "the end of a zstd frame", "the end of the bytes (truncated)")
        data = frame.unused_data
    return b"".join(parts)


def _lz4(data: bytes, where: str) -> bytes:
    parts, at, ended = [], 0, False
    while at < len(data):
        part, at = _lz4_block(data, at, where)
        ended = not part
        parts.append(part)
    if not ended:
        raise damaged(where, "the end mark of an LZ4 stream", "the end of the bytes (truncated)")
    return b"".join(parts)


def _lz4_block(data: bytes, at: int, where: str) -> tuple[bytes, int]:
    """The content of the block at byte `at`, and where the next one starts."""
    # Libraries of the extra `spark`.
    with optional_library(
        f"{where}, compressed with lz4",
        expected="the Python packages lz4 and xxhash to be installed",
        action="pip install 'tidelog[spark]', here and where executors run",
    ):
        import lz4.block  # noqa: PLC0415
        import xxhash  # noqa: PLC0415
    start = at + _LZ4_HEADER.size
    if start > len(data):
        raise damaged(f"{where} at byte {at}", "an LZ4 block header", "the end (truncated)")
    magic, token, stored_bytes, raw_bytes, checksum = _LZ4_HEADER.unpack_from(data, at)
    end, method = start + stored_bytes, token & 0xF0
    # Checked before the library makes room for so many bytes.
    fits = raw_bytes <= 1 << _SMALLEST_CLASS + (token & 0x0F)
    if magic != _LZ4_MAGIC or method not in (_AS_THEY_ARE, _LZ4) or end > len(data) or not fits:
        found = f"{data[at:start].hex()} and {len(data) - start} bytes"
        raise damaged(f"{where} at byte {at}", "an LZ4 block", found)
    raw = data[start:end]
    if method == _LZ4:
        try:
            raw = lz4.block.decompress(raw, uncompressed_size=raw_bytes)
        except lz4.block.LZ4BlockError as cause:
            raise damaged(f"{where} at byte {start}", "LZ4 sequences", str(cause)) from cause
    found_checksum = xxhash.xxh32_intdigest(raw, _SEED) & _CHECKSUM_BITS if raw else 0
    if len(raw) != raw_bytes or found_checksum != checksum:
        expected = f"{raw_bytes} bytes with xxHash32 {checksum:08x}"
        raise damaged(f"{where} at byte {start}", expected, f"{len(raw)} with {found_checksum:08x}")
    return raw, end
