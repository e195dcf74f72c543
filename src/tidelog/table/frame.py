"""A checked file of (key, value) rows, used for snapshot files that tidelog writes itself.

Layout, little-endian: magic `TDLGROWS`, count u32, then per row key length u32, value length u32,
key, value; at the end the CRC32C u32 of everything before it.

Invariant: equal rows in equal order give equal bytes, and `decode_rows` returns exactly the rows
that were encoded or raises CorruptObjectError naming the file.
"""

import struct
from collections.abc import Sequence
from pathlib import Path

import google_crc32c

from tidelog.options.units import plural
from tidelog.table.failures import corrupt, translate

Row = tuple[bytes, bytes]

_MAGIC = b"TDLGROWS"
_U32 = struct.Struct("<I")
_LENGTHS = struct.Struct("<II")
_HEADER_BYTES = len(_MAGIC) + _U32.size


def crc32c(data: bytes) -> int:
    return int(google_crc32c.value(data))


def encode_rows(rows: Sequence[Row]) -> bytes:
    """The file content for `rows`."""
    parts = [_MAGIC, _U32.pack(len(rows))]
    for key, value in rows:
        parts += (_LENGTHS.pack(len(key), len(value)), key, value)
    body = b"".join(parts)
    return body + _U32.pack(crc32c(body))


def decode_rows(data: bytes, path: Path) -> list[Row]:
    """The rows in `data`, the content of `path`; raises CorruptObjectError."""
    body, checksum = data[: -_U32.size], data[-_U32.size :]
    if not body.startswith(_MAGIC) or len(body) < _HEADER_BYTES:
        raise corrupt(path, f"a file that starts with {_MAGIC!r}", f"{data[:8]!r}")
    if checksum != _U32.pack(crc32c(body)):
        raise corrupt(path, f"CRC32C {crc32c(body):08x} at its end", checksum[::-1].hex())
    (count,) = _U32.unpack_from(body, len(_MAGIC))
    rows: list[Row] = []
    offset = _HEADER_BYTES
    for _ in range(count):
        if offset + _LENGTHS.size > len(body):
            raise corrupt(path, plural(count, "row"), plural(len(rows), "row"))
        key_bytes, value_bytes = _LENGTHS.unpack_from(body, offset)
        value_at = offset + _LENGTHS.size + key_bytes
        rows.append(
            (body[offset + _LENGTHS.size : value_at], body[value_at : value_at + value_bytes])
        )
        offset = value_at + value_bytes
    if offset != len(body):
        raise corrupt(
            path, f"{plural(count, 'row')} in {len(body)} bytes", f"rows that take {offset}"
        )
    return rows


def read_rows(path: Path) -> list[Row]:
    """The rows in `path`; raises CorruptObjectError when it is missing or damaged."""
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise corrupt(path, "a file of this snapshot", "no such file") from error
    except OSError as error:
        raise translate(error, path.parent) from error
    return decode_rows(data, path)
