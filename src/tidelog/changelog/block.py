"""Blocks: the unit in which changes are written to the log and read back.

Invariants: a sealed block never changes and is read without anything but its own bytes; no field of
a block is used before its checksum passed, except the magic and the version, which keep their place
in every version. Format: docs/internals/format.md, "Blocks".
"""

import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from io import BytesIO
from typing import TYPE_CHECKING, Final

import google_crc32c
import msgspec
import zstandard

from tidelog.changelog.change import ChangeBatch
from tidelog.changelog.columns import LARGE_PAYLOAD, MAX_PAYLOAD_BYTES, Columns, check_size, encode
from tidelog.changelog.upload_config import COMPRESSION_LEVEL
from tidelog.errors import OLDER_CHECKPOINT, CorruptObjectError, FormatVersionError, InvariantError
from tidelog.ids import KeyGroup, SeqNo

if TYPE_CHECKING:
    import pyarrow

MAGIC: Final = b"TLBK"
VERSION: Final = 1
HEADER: Final = struct.Struct("<4sBBBBQIIIIHHI")
_CRC_AT: Final = HEADER.size - 4

CODEC_NONE: Final = 0
CODEC_ZSTD: Final = 1
WORTHWHILE_GAIN: Final = 0.9
"""A payload is stored compressed only when that leaves at most this share of it."""

_PIECE_BYTES: Final = 1 << 20

LAST_KEY_GROUP: Final = KeyGroup(0xFFFF)


class _Zstd(threading.local):
    """The compressors and the decompressor of a thread.

    None is thread-safe, and a fresh one costs ten times as much as a payload of 100 bytes.
    """

    def __init__(self) -> None:
        self._compressors: dict[int, zstandard.ZstdCompressor] = {}
        self.decompressor = zstandard.ZstdDecompressor()

    def compress(self, payload: bytes, level: int) -> bytes:
        compressor = self._compressors.get(level)
        if compressor is None:
            compressor = self._compressors[level] = zstandard.ZstdCompressor(level=level)
        return compressor.compress(payload)


_zstd: Final = _Zstd()


class BlockKind(IntEnum):
    """What a block's payload is."""

    CHANGES = 1
    METADATA = 2
    SPARK_CHANGELOG = 3
    IN_FLIGHT = 4


_KINDS: Final = frozenset(BlockKind)


class BlockInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a block's header says: it holds the changes numbered [first, first + count), all in
    the key groups [key_group_min, key_group_max]; `raw_bytes` is its payload uncompressed.
    """

    kind: BlockKind
    first: SeqNo
    count: int
    key_group_min: KeyGroup
    key_group_max: KeyGroup
    raw_bytes: int

    @property
    def end(self) -> SeqNo:
        """The sequence number after the last change."""
        return SeqNo(self.first + self.count)


class SealedBlock(BlockInfo, frozen=True, kw_only=True):
    """A block ready to be stored: `data` is all of it."""

    data: bytes

    @property
    def size(self) -> int:
        """Bytes of the whole block as stored."""
        return len(self.data)


def seal(batch: ChangeBatch, *, compression_level: int = COMPRESSION_LEVEL) -> SealedBlock:
    """Encode a batch of changes; a compression level of 0 stores it as it is.

    Raises InvariantError for a batch that is empty, not strictly ascending, or above 2 GiB.
    """
    parts, key_bytes = encode(batch)
    return _seal(
        parts,
        kind=BlockKind.CHANGES,
        first=batch.first,
        count=len(batch),
        key_bytes=key_bytes,
        key_groups=(_key_group(batch.keys[0]), _key_group(batch.keys[-1])),
        level=compression_level,
    )


def seal_metadata(payload: bytes, first: SeqNo) -> SealedBlock:
    """A block that describes the states of the changes from `first`; it counts no change."""
    return seal_opaque(BlockKind.METADATA, payload, 0, first)


def seal_opaque(
    kind: BlockKind,
    payload: bytes,
    count: int,
    first: SeqNo,
    *,
    compression_level: int = COMPRESSION_LEVEL,
) -> SealedBlock:
    """A block whose payload is the caller's; it concerns every key group.

    A compression level of 0 stores it as it is. Raises InvariantError for a payload above 2 GiB.
    """
    check_size(first, len(payload))
    return _seal([payload], kind=kind, first=first, count=count, level=compression_level)


def _seal(
    parts: Sequence[bytes],
    *,
    kind: BlockKind,
    first: SeqNo,
    count: int,
    key_bytes: int = 0,
    key_groups: tuple[KeyGroup, KeyGroup] = (KeyGroup(0), LAST_KEY_GROUP),
    level: int = COMPRESSION_LEVEL,
) -> SealedBlock:
    raw_bytes = sum(map(len, parts))

    def header(codec: int, stored_bytes: int) -> bytes:
        numbers = first, count, raw_bytes, stored_bytes, key_bytes, *key_groups
        return HEADER.pack(MAGIC, VERSION, kind, codec, 0, *numbers, 0)[:_CRC_AT]

    store = _stored if raw_bytes < LARGE_PAYLOAD else _stored_in_pieces
    return SealedBlock(
        data=store(parts, raw_bytes, level, header),
        kind=kind,
        first=first,
        count=count,
        key_group_min=key_groups[0],
        key_group_max=key_groups[1],
        raw_bytes=raw_bytes,
    )


def _stored(
    parts: Sequence[bytes], raw_bytes: int, level: int, header: Callable[[int, int], bytes]
) -> bytes:
    """The bytes of a block of this payload; `header` is of a codec and the bytes after it."""
    codec, payload = CODEC_NONE, b"".join(parts)
    if level:
        packed = _zstd.compress(payload, level)
        if len(packed) <= WORTHWHILE_GAIN * raw_bytes:
            codec, payload = CODEC_ZSTD, packed
    head = header(codec, len(payload))
    return b"".join((head, _checksum(head, payload).to_bytes(4, "little"), payload))


def _stored_in_pieces(
    parts: Sequence[bytes], raw_bytes: int, level: int, header: Callable[[int, int], bytes]
) -> bytes:
    """As `_stored`, for a large payload: besides it memory has nothing but the block."""
    block = BytesIO()
    codec = CODEC_ZSTD if level and _is_compressed(parts, raw_bytes, level, block) else CODEC_NONE
    if codec == CODEC_NONE:
        block.truncate(block.seek(HEADER.size))
        block.writelines(parts)
    head = header(codec, block.tell() - HEADER.size)
    crc = google_crc32c.value(head)
    block.seek(HEADER.size)
    while piece := block.read(_PIECE_BYTES):
        crc = google_crc32c.extend(crc, piece)
    block.seek(0)
    block.write(head + crc.to_bytes(4, "little"))
    return block.getvalue()


def _is_compressed(parts: Sequence[bytes], raw_bytes: int, level: int, block: BytesIO) -> bool:
    """Whether that was worthwhile: the block is without an end where it was not."""
    compressor = zstandard.ZstdCompressor(level=level).compressobj(size=raw_bytes)
    limit = block.seek(HEADER.size) + WORTHWHILE_GAIN * raw_bytes
    for part in parts:
        view = memoryview(part)
        for begin in range(0, len(part), _PIECE_BYTES):
            block.write(compressor.compress(view[begin : begin + _PIECE_BYTES]))
            if block.tell() > limit:
                return False
    block.write(compressor.flush())
    return block.tell() <= limit


def _key_group(row_key: bytes) -> KeyGroup:
    return KeyGroup(int.from_bytes(row_key[:2], "big"))


def _checksum(header: bytes, body: bytes) -> int:
    return int(google_crc32c.extend(google_crc32c.value(header), body))


class Block(BlockInfo, frozen=True, kw_only=True):
    """An opened block of object `name`; its checksum passed, it is decompressed on use."""

    name: str
    offset: int
    codec: int
    key_bytes: int
    body: bytes

    @property
    def size(self) -> int:
        """Bytes of the whole block as stored."""
        return HEADER.size + len(self.body)

    def payload(self) -> bytes:
        """The payload uncompressed; raises CorruptObjectError."""
        raw = self.body
        if self.codec == CODEC_ZSTD:
            try:
                if zstandard.frame_content_size(raw) > self.raw_bytes:
                    # The library would make room for as much as the frame says.
                    raise self._corrupt(f"a zstd frame of {self.raw_bytes} bytes", "a larger one")
                raw = _zstd.decompressor.decompress(raw, max_output_size=self.raw_bytes)
            except zstandard.ZstdError as cause:
                raise self._corrupt("a zstd frame", str(cause)) from cause
        if len(raw) != self.raw_bytes:
            raise self._corrupt(f"a payload of {self.raw_bytes} bytes", f"{len(raw)} bytes")
        return raw

    def changes(self) -> ChangeBatch:
        """The changes as columns of Python objects; raises CorruptObjectError."""
        return self._columns().changes(self.first)

    def _columns(self) -> Columns:
        if self.kind is not BlockKind.CHANGES:
            raise InvariantError(
                f"block of {self.name} at byte {self.offset}",
                expected="a block of changes",
                found=f"kind {self.kind.name}",
                action="report this as a bug of the log reader",
            )
        return Columns.of(self.payload(), self.count, self.key_bytes, self._corrupt)

    def _corrupt(self, expected: str, found: str) -> CorruptObjectError:
        return corrupt(self.name, self.offset, expected, found)


def record_batch(blocks: Sequence[Block]) -> "pyarrow.RecordBatch":
    """The changes of all blocks as Arrow columns `op, key_group, state_id, key, value`.

    `key` is the full row key; those of a single block are not copied. Needs pyarrow; raises
    CorruptObjectError.

    A call of Arrow costs as much as a thousand rows, so small blocks are best read together.
    """
    return Columns.joined([block._columns() for block in blocks]).record_batch()


def open_block(data: bytes, offset: int = 0, name: str = "block", *, base: int = 0) -> Block:
    """Open the block at `offset` of `data`, which are the bytes of object `name` from `base` on.

    Raises CorruptObjectError (truncated, damaged) and FormatVersionError (written by a newer
    release).
    """
    object_offset, start = base + offset, offset + HEADER.size
    if len(data) < start:
        raise corrupt(
            name, object_offset, "a block header", f"{len(data) - offset} bytes (truncated)"
        )
    magic, version, kind, codec, flags, *numbers, crc = HEADER.unpack_from(data, offset)
    check_magic(name, object_offset, (magic, version), (MAGIC, VERSION))
    first, count, raw_bytes, stored_bytes, key_bytes, key_group_min, key_group_max = numbers
    body = data[start : start + stored_bytes]
    if len(body) < stored_bytes:
        expected = f"{stored_bytes} bytes of payload"
        raise corrupt(name, object_offset, expected, f"{len(body)} bytes (truncated)")
    checksum = _checksum(data[offset : offset + _CRC_AT], body)
    if checksum != crc:
        raise corrupt(name, object_offset, f"CRC32C {crc:08x}", f"{checksum:08x}")
    if kind not in _KINDS or codec > CODEC_ZSTD or flags:
        expected = "a known kind and codec, no flags"
        raise newer(name, object_offset, expected, f"kind {kind}, codec {codec}, flags {flags}")
    if raw_bytes > MAX_PAYLOAD_BYTES:
        expected = f"a payload of at most {MAX_PAYLOAD_BYTES} bytes"
        raise corrupt(name, object_offset, expected, f"{raw_bytes} bytes")
    return Block(
        name=name,
        offset=object_offset,
        kind=BlockKind(kind),
        first=SeqNo(first),
        count=count,
        key_group_min=KeyGroup(key_group_min),
        key_group_max=KeyGroup(key_group_max),
        raw_bytes=raw_bytes,
        codec=codec,
        key_bytes=key_bytes,
        body=body,
    )


def iter_blocks(data: bytes, name: str = "blocks", *, base: int = 0) -> Iterator[Block]:
    """The blocks that fill `data` one after the other; arguments and errors as of `open_block`."""
    offset = 0
    while offset < len(data):
        block = open_block(data, offset, name, base=base)
        yield block
        offset += block.size


def check_magic(
    name: str, offset: int, actual: tuple[bytes, int], expected: tuple[bytes, int]
) -> None:
    """Raise unless the magic fits and the version is one this release reads."""
    (magic, version), (own_magic, newest) = actual, expected
    if magic != own_magic:
        raise corrupt(name, offset, f"magic {own_magic!r}", f"{magic!r}")
    if version == 0:
        raise corrupt(name, offset, "a format version from 1", "0")
    if version > newest:
        raise newer(name, offset, f"format version <= {newest}", f"version {version}")


def newer(name: str, offset: int, expected: str, found: str) -> FormatVersionError:
    """The error for bytes that only a newer release can have written."""
    return FormatVersionError(
        f"object {name}, byte {offset}",
        expected=expected,
        found=found,
        action="use the tidelog release that wrote it, or a newer one, "
        f"or {OLDER_CHECKPOINT}; nothing in it was changed",
    )


def corrupt(name: str, offset: int, expected: str, found: str) -> CorruptObjectError:
    """The error for bytes at `offset` of object `name` that are not what was written."""
    return CorruptObjectError(
        f"object {name} is damaged at byte {offset}",
        expected=expected,
        found=found,
        action=f"{OLDER_CHECKPOINT} or bring the object back from a backup",
    )
