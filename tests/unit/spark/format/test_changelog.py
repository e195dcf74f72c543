"""Spark's changelogs: what is not exactly one is refused by name."""

import struct

import pytest
import zstandard

from tidelog.errors import CorruptObjectError, FormatVersionError
from tidelog.spark.format import lz4
from tidelog.spark.format.changelog import Record, RecordKind, read_changelog
from tidelog.spark.format.xxhash32 import xxhash32

END = struct.pack(">i", -1)


def zstd(content: bytes) -> bytes:
    return zstandard.compress(content)


def text(value: bytes) -> bytes:
    return struct.pack(">H", len(value)) + value


def sized(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


V2 = text(b"v2")
V3 = text(b"v3") + text(b"[]")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0x02CC5D05),
        (b"a", 0x550D7456),
        (b"Nobody inspects the spammish repetition", 0xE2293B2F),
    ],
)
def test_the_hash_is_xxhash32(data: bytes, expected: int) -> None:
    assert xxhash32(data, 0) == expected


def test_a_range_of_keys_is_deleted() -> None:
    content = V2 + b"\x20" + sized(b"from") + sized(b"to") + b"\0"
    assert read_changelog(zstd(content), "c").records == (
        Record(RecordKind.DELETE_RANGE, b"from", b"to"),
    )


@pytest.mark.parametrize("key", [b"k", b"v2", b"x" * 30_000, b"x" * 0x27664])
def test_a_changelog_without_a_version_is_version_1(key: bytes) -> None:
    changelog = read_changelog(zstd(sized(key) + sized(b"v") + END), "c")
    assert (changelog.version, changelog.records) == (1, (Record(RecordKind.PUT, key, b"v"),))


def test_frames_that_follow_each_other_are_one_changelog() -> None:
    content = V3 + sized(b"k") + sized(b"v") + END
    assert len(read_changelog(zstd(content[:9]) + zstd(content[9:]), "c").records) == 1


def test_a_version_of_a_newer_spark_is_refused() -> None:
    with pytest.raises(FormatVersionError, match=r"0/3/1_a\.changelog.*found version 5"):
        read_changelog(zstd(text(b"v5")), "0/3/1_a.changelog")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        V3 + sized(b"k") + sized(b"v"),
        V3 + END + b"more",
        V3 + struct.pack(">i", -2),
        text(b"v3") + text(b"no lineage") + END,
        V2 + b"\x07" + sized(b"k") + sized(b"v") + b"\0",
        V2 + b"\x10" + sized(b"k") + sized(b"v") + b"\0",
        V2 + b"\x01" + sized(b"k") + END + b"\0",
        V2 + b"\x01" + struct.pack(">i", -5) + b"\0",
        V2 + b"\x01" + sized(b"k") + struct.pack(">i", -5) + b"\0",
        V2,
    ],
)
def test_what_is_no_changelog_is_damage(content: bytes) -> None:
    with pytest.raises(CorruptObjectError, match=r"c, uncompressed|c is damaged"):
        read_changelog(zstd(content), "c")


@pytest.mark.parametrize("data", [b"", b"plain text", b"LZ4Block", zstd(V3 + END) + b"more"])
def test_bytes_of_no_codec_are_damage(data: bytes) -> None:
    with pytest.raises(CorruptObjectError, match=r"^c"):
        read_changelog(data, "c")


def test_an_overlapping_match_repeats() -> None:
    # One literal "a", then a match of 4 + 15 + 2 bytes at distance 1, then the last literal "b".
    assert lz4.decompress_block(b"\x1fa\x01\x00\x02\x10b") == b"a" * 22 + b"b"


@pytest.mark.parametrize("data", [b"", b"\x50ab", b"\x10a\x05\x00", b"\x10a\x00\x00", b"\xf0\xff"])
def test_what_are_no_lz4_sequences_is_refused(data: bytes) -> None:
    with pytest.raises((ValueError, IndexError)):
        lz4.decompress_block(data)
