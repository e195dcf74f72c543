"""Spark's own changelog files, decoded: what a batch changed in one state store.

Invariants: a changelog is returned whole, or damage is reported by name; a codec that cannot be
read is refused by its name; keys and values are the bytes that Spark handed to RocksDB. Files have
four versions:

    1 records     2 "v2", records     3 "v3", lineage, records     4 "v4", lineage, records

Texts are u16 length and UTF-8, numbers are big-endian. Records of versions 1 and 3 are puts and
deletes without a type; those of 2 and 4 start with one. Version 1 has no mark. The codec is
recognised by the first bytes. lz4 is framed as the JVM's `LZ4BlockOutputStream` does, which no LZ4
tool reads: streams follow each other, a block without bytes ends one, and a block is

    "LZ4Block" | u8 method | u32 stored | u32 raw length | u32 checksum | bytes    little-endian

where the upper half of method is 0x10 (bytes as they are) or 0x20 (LZ4), the lower half the size
class of the stream's blocks, and the checksum is 28 bits of xxHash32 of the raw bytes.
"""

import re
import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

import msgspec
import zstandard

from tidelog.errors import ConfigError, CorruptObjectError, FormatVersionError, optional_library
from tidelog.spark.format.damage import damaged

NEWEST_VERSION: Final = 4
_WITH_TYPES: Final = (2, 4)
_WITH_LINEAGE: Final = 3
_END: Final = -1
_NOTHING: Final = -1
_VERSION: Final = re.compile(rb"v([0-9]{1,4})")

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


class RecordKind(IntEnum):
    """What a record does; the numbers are Spark's."""

    PUT = 0x01
    DELETE = 0x10
    MERGE = 0x11
    """Appends the value to what the key has."""
    DELETE_RANGE = 0x20
    """Deletes the keys from `key` to the one before `value`."""


class Record(NamedTuple):
    """One change; `value` is None for a delete."""

    kind: RecordKind
    key: bytes
    value: bytes | None


class LineageItem(msgspec.Struct, frozen=True, rename="camel"):
    """A state version and the checkpoint id under which it was stored."""

    version: int
    checkpoint_unique_id: str


@dataclass(frozen=True, slots=True)
class Changelog:
    """A decoded file; the lineage names the versions from the last snapshot on, and is empty in
    versions 1 and 2.
    """

    version: int
    codec: str
    lineage: tuple[LineageItem, ...]
    records: tuple[Record, ...]


def read_changelog(data: bytes, where: str) -> Changelog:
    """Decode the bytes of a changelog file.

    Raises CorruptObjectError (damaged, truncated), FormatVersionError (a newer Spark wrote it),
    and as `decompress`, all naming `where`.
    """
    codec, content = decompress(data, where)
    version = _version(content)
    if version > NEWEST_VERSION:
        raise FormatVersionError(
            where,
            expected=f"a changelog of version <= {NEWEST_VERSION}",
            found=f"version {version}",
            action="use a tidelog release that supports the Spark that wrote it",
        )
    reader = _Reader(content, where)
    if version > 1:
        reader.text()
    lineage = _lineage(reader, where) if version >= _WITH_LINEAGE else ()
    records = reader.typed_records() if version in _WITH_TYPES else reader.plain_records()
    return Changelog(version, codec, lineage, tuple(records))


def _version(content: bytes) -> int:
    # As Spark decides: whatever does not start with the text of a version is version 1.
    length = int.from_bytes(content[:2], "big")
    match = _VERSION.fullmatch(content[2 : 2 + length])
    return max(int(match[1]), 1) if match else 1


def _lineage(reader: "_Reader", where: str) -> tuple[LineageItem, ...]:
    try:
        return msgspec.json.decode(reader.text(), type=tuple[LineageItem, ...])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as cause:
        raise damaged(where, "the lineage of a changelog", str(cause)) from cause


class _Reader:
    """Reads a changelog's uncompressed bytes from front to end."""

    def __init__(self, content: bytes, where: str) -> None:
        self._content = content
        self._where = where
        self._offset = 0

    def text(self) -> bytes:
        return self._take(int.from_bytes(self._take(2), "big"))

    def plain_records(self) -> list[Record]:
        records: list[Record] = []
        while (length := self._int()) != _END:
            key = self._sized(length)
            value_length = self._int()
            if value_length < 0:
                records.append(Record(RecordKind.DELETE, key, None))
            else:
                records.append(Record(RecordKind.PUT, key, self._take(value_length)))
        return self._ended(records)

    def typed_records(self) -> list[Record]:
        records: list[Record] = []
        while (code := self._take(1)[0]) != 0:
            if code not in _KINDS:
                raise self._damage("a type of record", f"{code:#04x}")
            key = self._sized(self._int())
            value_length = self._int()
            if (code == RecordKind.DELETE) != (value_length == _NOTHING):
                raise self._damage("a value exactly if it is no delete", f"length {value_length}")
            value = None if value_length == _NOTHING else self._sized(value_length)
            records.append(Record(RecordKind(code), key, value))
        return self._ended(records)

    def _ended(self, records: list[Record]) -> list[Record]:
        if self._offset != len(self._content):
            raise self._damage("the end", f"{len(self._content) - self._offset} more bytes")
        return records

    def _int(self) -> int:
        return int(_INT.unpack(self._take(4))[0])

    def _sized(self, length: int) -> bytes:
        if length < 0:
            raise self._damage("a length", str(length))
        return self._take(length)

    def _take(self, length: int) -> bytes:
        chunk = self._content[self._offset : self._offset + length]
        if len(chunk) < length:
            raise self._damage(f"{length} bytes", f"{len(chunk)} (truncated)")
        self._offset += length
        return chunk

    def _damage(self, expected: str, found: str) -> CorruptObjectError:
        return damaged(f"{self._where}, uncompressed byte {self._offset},", expected, found)


_INT: Final = struct.Struct(">i")
_KINDS: Final = frozenset(RecordKind)


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
    parts, offset, is_complete = [], 0, False
    while offset < len(data):
        part, offset = _lz4_block(data, offset, where)
        is_complete = not part
        parts.append(part)
    if not is_complete:
        raise damaged(where, "the end mark of an LZ4 stream", "the end of the bytes (truncated)")
    return b"".join(parts)


def _lz4_block(data: bytes, offset: int, where: str) -> tuple[bytes, int]:
    """The content of the block at byte `offset`, and where the next one starts."""
    # Libraries of the extra `spark`.
    with optional_library(
        f"{where}, compressed with lz4",
        "the Python packages lz4 and xxhash to be installed",
        "spark",
        ", here and where executors run",
    ):
        import lz4.block  # noqa: PLC0415
        import xxhash  # noqa: PLC0415
    start = offset + _LZ4_HEADER.size
    if start > len(data):
        raise damaged(f"{where} at byte {offset}", "an LZ4 block header", "the end (truncated)")
    magic, token, stored_bytes, raw_bytes, checksum = _LZ4_HEADER.unpack_from(data, offset)
    end, method = start + stored_bytes, token & 0xF0
    # Checked before the library makes room for so many bytes.
    fits = raw_bytes <= 1 << _SMALLEST_CLASS + (token & 0x0F)
    if magic != _LZ4_MAGIC or method not in (_AS_THEY_ARE, _LZ4) or end > len(data) or not fits:
        actual = f"{data[offset:start].hex()} and {len(data) - start} bytes"
        raise damaged(f"{where} at byte {offset}", "an LZ4 block", actual)
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
