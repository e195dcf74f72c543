"""The compression of Spark's changelogs, recognised by their first bytes.

Invariants: what is returned is complete, or damage is reported; a codec that cannot be read is
refused by its name.
"""

from typing import Final

import zstandard

from tidelog.errors import ConfigError
from tidelog.spark.format import lz4
from tidelog.spark.format.damage import damaged

_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_REFUSED: Final = {b"\x82SNAPPY\0": "snappy", b"ZV": "lzf"}


def decompress(data: bytes, where: str) -> tuple[str, bytes]:
    """Name of the codec, `lz4` or `zstd`, and the uncompressed bytes.

    Raises CorruptObjectError (damaged, truncated, no known codec) and ConfigError for a changelog
    that Spark has compressed with snappy or lzf.
    """
    if data.startswith(lz4.MAGIC):
        return "lz4", lz4.decompress(data, where)
    if data.startswith(_ZSTD_MAGIC):
        return "zstd", _zstd(data, where)
    for magic, codec in _REFUSED.items():
        if data.startswith(magic):
            raise ConfigError(
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
