"""Spark's changelogs: those that the installed Spark writes are decoded, whatever their version and
codec, and what is not exactly one is refused by name.

`SparkChangelogs.scala` writes them with Spark's own classes.
"""

import struct
import sys
from pathlib import Path

import pytest
import xxhash
import zstandard

from tests.unit.spark.scala_checks import ScalaChecks
from tidelog.errors import ConfigError, CorruptObjectError, FormatVersionError
from tidelog.spark.format.changelog import (
    LineageItem,
    Record,
    RecordKind,
    decompress,
    read_changelog,
)

END = struct.pack(">i", -1)


def zstd(content: bytes) -> bytes:
    return zstandard.compress(content)


def text(value: bytes) -> bytes:
    return struct.pack(">H", len(value)) + value


def sized(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


V2 = text(b"v2")
V3 = text(b"v3") + text(b"[]")


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


def lz4_block(stored: bytes, raw: bytes, *, method: int = 0x26) -> bytes:
    """A block of size class 6: up to 64 KiB."""
    checksum = xxhash.xxh32_intdigest(raw, 0x9747B28C) & 0x0FFFFFFF if raw else 0
    return struct.pack("<8sBIII", b"LZ4Block", method, len(stored), len(raw), checksum) + stored


LZ4_END = lz4_block(b"", b"", method=0x16)


def test_an_overlapping_match_repeats() -> None:
    # A literal "a", a match of 4 + 15 + 2 bytes at distance 1, then five literals.
    raw = b"a" * 22 + b"bbbbb"
    stream = lz4_block(b"\x1fa\x01\x00\x02\x50bbbbb", raw) + LZ4_END
    assert decompress(stream, "c") == ("lz4", raw)


def test_streams_that_follow_each_other_are_one_changelog() -> None:
    one, other = lz4_block(b"one", b"one", method=0x16), lz4_block(b"two", b"two", method=0x16)
    assert decompress(one + LZ4_END + other + LZ4_END, "c") == ("lz4", b"onetwo")


@pytest.mark.parametrize(
    "stored", [b"", b"\x50ab", b"\x10a\x05\x00", b"\x10a\x00\x00", b"\xf0\xff"]
)
def test_what_are_no_lz4_sequences_is_refused(stored: bytes) -> None:
    with pytest.raises(CorruptObjectError, match="c at byte 21 is damaged"):
        decompress(lz4_block(stored, b"a" * 27) + LZ4_END, "c")


def test_a_block_larger_than_its_size_class_is_refused_before_it_is_decompressed() -> None:
    with pytest.raises(CorruptObjectError, match=r"^c at byte 0 is damaged.*an LZ4 block"):
        decompress(lz4_block(b"", b"a" * 65_537), "c")


@pytest.mark.parametrize("package", ["lz4", "xxhash"])
def test_without_its_libraries_lz4_is_refused_with_what_to_install(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (package, "lz4.block"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigError, match=r"^c, compressed with lz4.*tidelog\[spark\]"):
        decompress(LZ4_END, "c")


RECORDS = 400


@pytest.fixture(scope="session")
def written(scala_checks: ScalaChecks, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of changelogs, `<codec>-v<version>[-empty].changelog`."""
    folder = tmp_path_factory.mktemp("changelogs")
    scala_checks.run("format.SparkChangelogs", folder)
    return folder


def value(number: int) -> bytes:
    """As `SparkChangelogs.value`."""
    if number % 8 < 4:
        return bytes([number % 256]) * (number * 10)
    state, out = number, bytearray()
    for _ in range(number * 10):
        state = (state * 1_103_515_245 + 12_345) % 2**32
        out.append(state >> 16 & 0xFF)
    return bytes(out)


def record(number: int, *, typed: bool) -> Record:
    key = f"key-{number}".encode()
    if number % 4 == 1:
        return Record(RecordKind.DELETE, key, None)
    if number % 4 == 2 and typed:
        return Record(RecordKind.MERGE, key, value(number))
    return Record(RecordKind.PUT, key, value(number))


@pytest.mark.parametrize("version", [1, 2, 3, 4])
@pytest.mark.parametrize("codec", ["lz4", "zstd"])
@pytest.mark.parametrize(("suffix", "records"), [("", RECORDS), ("-empty", 0)])
def test_every_record_of_spark_is_decoded_and_the_lineage(
    written: Path, codec: str, version: int, suffix: str, records: int
) -> None:
    path = written / f"{codec}-v{version}{suffix}.changelog"
    changelog = read_changelog(path.read_bytes(), path.name)
    assert (changelog.version, changelog.codec) == (version, codec)
    typed = version in (2, 4)
    assert changelog.records == tuple(record(number, typed=typed) for number in range(records))
    lineage = (LineageItem(7, "seven"), LineageItem(8, "eight")) if version > 2 else ()
    assert changelog.lineage == lineage


@pytest.mark.parametrize("codec", ["snappy", "lzf"])
def test_a_codec_that_is_not_read_is_refused_by_its_name(written: Path, codec: str) -> None:
    path = written / f"{codec}-v3.changelog"
    with pytest.raises(ConfigError, match=rf"{path.name}.*found {codec}"):
        read_changelog(path.read_bytes(), path.name)
