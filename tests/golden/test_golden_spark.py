"""What is stored for Spark stays readable, byte for byte, and no damage hides."""

from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from tests.golden import golden_spark as golden
from tests.golden.writing import FOLDER, stored
from tidelog.errors import CorruptObjectError, FormatVersionError
from tidelog.spark.format.changelog import RecordKind, read_changelog
from tidelog.spark.format.index import read_index
from tidelog.spark.format.segment import FooterEntry, read_content, read_footer, segment_in_commit

UNREADABLE = (CorruptObjectError, FormatVersionError)


def flips(data: bytes) -> Iterator[bytes]:
    for at in range(len(data)):
        for bit in range(8):
            yield data[:at] + bytes([data[at] ^ (1 << bit)]) + data[at + 1 :]


def index_line() -> bytes:
    return stored("spark_commit_v1.txt").splitlines()[2]


@pytest.mark.parametrize("name", golden.FILES)
def test_every_golden_file_is_written_the_same_today(name: str) -> None:
    assert golden.FILES[name] == stored(name)


def test_the_footer_of_a_segment_is_read() -> None:
    author, entries = read_footer(stored("spark_segment_v1.bin"), "a.seg")
    assert author == golden.AUTHOR
    assert list(entries) == [
        FooterEntry(new.name, place.offset, place.length, new.piece, new.pieces)
        for new, place in zip(golden.PIECES, golden.PLACES, strict=True)
    ]


def test_the_blocks_of_a_segment_hold_the_pieces() -> None:
    data = stored("spark_segment_v1.bin")
    for new, place in zip(golden.PIECES, golden.PLACES, strict=True):
        block = data[place.offset : place.offset + place.length]
        assert read_content(block, new.name, new.piece, new.pieces, "a.seg") == new.content


def test_the_index_line_of_a_commit_is_read() -> None:
    assert read_index(index_line().decode(), "commits/11") == golden.COMMIT


def test_a_commit_with_a_segment_in_it_is_read() -> None:
    data = stored("spark_commit_segment_v1.txt")
    line = data.splitlines()[2].decode()
    assert read_index(line, "commits/11") == golden.COMMIT_WITH_SEGMENT
    segment = segment_in_commit(data, "commits/11")
    assert segment == golden.SEGMENT_IN_COMMIT
    assert read_footer(segment, "commits/11")[0] == golden.AUTHOR


def test_a_roll_up_is_read() -> None:
    assert read_index(stored("spark_roll_up_v1.json").decode(), "roll-up") == golden.ROLL_UP


def read_line(line: bytes) -> object:
    return read_index(line.decode(errors="replace"), "commits/11")


def read_segment(data: bytes) -> object:
    return read_footer(data, "a.seg")


STORED = pytest.mark.parametrize(
    ("data", "read", "name"),
    [
        (stored("spark_segment_v1.bin"), read_segment, r"a\.seg"),
        (index_line(), read_line, "commits/11"),
    ],
    ids=["segment", "index"],
)


@STORED
def test_every_flipped_bit_is_found(
    data: bytes, read: Callable[[bytes], object], name: str
) -> None:
    for damaged in flips(data):
        with pytest.raises(UNREADABLE, match=name):
            read(damaged)


@STORED
def test_every_truncation_is_found(data: bytes, read: Callable[[bytes], object], name: str) -> None:
    for length in range(len(data)):
        with pytest.raises(CorruptObjectError, match=name):
            read(data[:length])


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_an_aggregation_of_spark_is_decoded(codec: str) -> None:
    name = f"spark_changelog_v3_{codec}.bin"
    changelog = read_changelog(stored(name), name)
    assert (changelog.version, changelog.codec) == (3, codec)
    assert [item.version for item in changelog.lineage] == [1, 2, 3]
    assert all(len(item.checkpoint_unique_id) == 36 for item in changelog.lineage)
    sums = {}
    for record in changelog.records:
        assert record.kind is RecordKind.PUT
        assert record.value is not None
        # A byte that tells the encoding, then Spark's row: eight bytes of null bits, one field.
        sums[number(record.key)] = number(record.value)
    assert len(sums) == 20
    assert sums == {key: sum(v for v in range(4) if 0 <= key - 10 * v < 40) for key in sums}
    assert 30 <= min(sums) <= max(sums) < 70


def number(row: bytes) -> int:
    """The only field of a row."""
    return int.from_bytes(row[-8:], "little")


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_a_join_of_spark_with_column_families_is_decoded(codec: str) -> None:
    name = f"spark_changelog_v4_{codec}.bin"
    changelog = read_changelog(stored(name), name)
    assert (changelog.version, changelog.codec) == (4, codec)
    assert [item.version for item in changelog.lineage] == [1, 2, 3]
    assert {record.kind for record in changelog.records} == {RecordKind.PUT}
    families = [record.key[0] for record in changelog.records]
    assert len(families) == 86
    assert len(set(families)) == 4  # two stores for each side


@pytest.mark.parametrize("name", golden.CHANGELOGS)
def test_every_truncation_of_a_changelog_is_found(name: str) -> None:
    data = stored(name)
    for length in range(len(data)):
        with pytest.raises(CorruptObjectError, match="state/0/3"):
            read_changelog(data[:length], "state/0/3")


def test_every_flipped_bit_of_a_changelog_with_lz4_is_found_or_harmless() -> None:
    data = stored("spark_changelog_v3_lz4.bin")
    original = read_changelog(data, "c")
    for damaged in flips(data):
        # The size class of a block is advice, and an LZ4 sequence can say one thing in two ways.
        with suppress(UNREADABLE):
            assert read_changelog(damaged, "c") == original


def test_every_golden_file_of_spark_is_one_of_those_tested_here() -> None:
    files = {path.name for path in FOLDER.glob("spark_*")}
    assert files == {*golden.FILES, *golden.CHANGELOGS}
