"""Changelogs that the installed Spark writes are decoded, whatever their version and codec.

`SparkChangelogs.scala` writes them with Spark's own classes.
"""

from pathlib import Path

import pytest

from tests.unit.spark.scala_checks import ScalaChecks
from tidelog.errors import ConfigError
from tidelog.spark.format.changelog import LineageItem, Record, RecordKind, read_changelog

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
def test_every_record_is_decoded(written: Path, codec: str, version: int) -> None:
    path = written / f"{codec}-v{version}.changelog"
    changelog = read_changelog(path.read_bytes(), path.name)
    assert (changelog.version, changelog.codec) == (version, codec)
    typed = version in (2, 4)
    assert changelog.records == tuple(record(number, typed=typed) for number in range(RECORDS))


@pytest.mark.parametrize("version", [1, 2, 3, 4])
@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_a_changelog_without_records_is_decoded(written: Path, codec: str, version: int) -> None:
    path = written / f"{codec}-v{version}-empty.changelog"
    changelog = read_changelog(path.read_bytes(), path.name)
    assert (changelog.version, changelog.records) == (version, ())


@pytest.mark.parametrize(("version", "versions"), [(1, []), (2, []), (3, [7, 8]), (4, [7, 8])])
def test_the_lineage_is_decoded(written: Path, version: int, versions: list[int]) -> None:
    path = written / f"zstd-v{version}.changelog"
    lineage = read_changelog(path.read_bytes(), path.name).lineage
    ids = {7: "seven", 8: "eight"}
    assert list(lineage) == [LineageItem(version, ids[version]) for version in versions]


@pytest.mark.parametrize("codec", ["snappy", "lzf"])
def test_a_codec_that_is_not_read_is_refused_by_its_name(written: Path, codec: str) -> None:
    path = written / f"{codec}-v3.changelog"
    with pytest.raises(ConfigError, match=rf"{path.name}.*found {codec}"):
        read_changelog(path.read_bytes(), path.name)
