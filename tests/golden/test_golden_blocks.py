"""Blocks and segments stay readable, byte for byte."""

import pytest

from tests.golden import golden_blocks as golden
from tests.golden import golden_in_flight
from tests.golden.writing import FOLDER, stored
from tidelog.changelog.block import CODEC_NONE, CODEC_ZSTD, BlockKind, iter_blocks, open_block
from tidelog.changelog.segment import Entry, LogRange, read_footer

FIRST = golden.CHANGES.first


def test_a_plain_block_of_version_1_is_read() -> None:
    block = open_block(stored("block_changes_v1.bin"))
    assert (block.codec, block.first, block.count) == (CODEC_NONE, 1_000_000_007, 4)
    assert (block.key_group_min, block.key_group_max) == (0, 0xFFFE)
    assert block.changes() == golden.CHANGES


def test_a_compressed_block_of_version_1_is_read() -> None:
    block = open_block(stored("block_changes_zstd_v1.bin"))
    assert (block.codec, block.first, block.count) == (CODEC_ZSTD, 5, 64)
    assert (block.key_group_min, block.key_group_max) == (0, 63)
    assert block.changes() == golden.COMPRESSIBLE


def test_a_metadata_block_of_version_1_is_read() -> None:
    block = open_block(stored("block_metadata_v1.bin"))
    assert (block.kind, block.first, block.count) == (BlockKind.METADATA, FIRST, 0)
    assert block.payload() == golden.METADATA


def test_a_segment_of_version_1_is_read() -> None:
    segment = read_footer(stored("segment_v1.bin"), golden.SEGMENT_NAME)
    assert segment.author == golden.AUTHOR
    assert segment.entries == (
        Entry("count", 0, 2, 44, 49, FIRST, 0, 0, 0xFFFF),
        Entry("count", 0, 1, 93, 110, FIRST, 4, 0, 0xFFFE),
        Entry("count", 0, 1, 203, 55, FIRST + 4, 1, 0, 0),
        Entry("zählen", 65_535, 1, 258, 110, FIRST, 4, 0, 0xFFFE),
    )


def test_the_ranges_of_a_segment_of_version_1_hold_its_changes() -> None:
    first, second = golden.segment().ranges
    assert first == LogRange(golden.SEGMENT_NAME, 44, 214, FIRST, FIRST + 5, 0, 0xFFFF)
    assert second == LogRange(golden.SEGMENT_NAME, 258, 110, FIRST, FIRST + 4, 0, 0xFFFE)
    data = stored("segment_v1.bin")
    (block,) = iter_blocks(data[second.offset : second.offset + second.length])
    assert block.changes() == golden.CHANGES


@pytest.mark.parametrize(
    "name", ["block_changes_v1.bin", "block_metadata_v1.bin", "segment_v1.bin"]
)
def test_what_is_stored_plain_is_written_the_same_today(name: str) -> None:
    assert golden.FILES[name]() == stored(name)


def test_every_golden_file_is_one_of_those_tested_here() -> None:
    files = {path.name for path in FOLDER.glob("*_v1.bin")}
    tested = set(golden.FILES) | set(golden_in_flight.FILES)
    assert {name for name in files if name.startswith(("block_", "segment_", "values_"))} == tested
