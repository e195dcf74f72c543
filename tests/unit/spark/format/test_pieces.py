"""Pieces of changelogs in blocks and segments: nobody gets another's bytes."""

import asyncio

import pytest

from tests.golden import golden_spark as golden
from tests.support.spark_segments import NewPiece, pack_pieces, seal_piece
from tidelog.changelog.block import BlockKind, seal_metadata, seal_opaque
from tidelog.changelog.segment import BlockGroup, pack
from tidelog.errors import CorruptObjectError, FormatVersionError, InvariantError
from tidelog.ids import SeqNo
from tidelog.spark.format.block import framing_bytes, read_content
from tidelog.spark.format.names import ChangelogName
from tidelog.spark.format.segment import read_footer, read_footer_at
from tidelog.storage.memory import MemoryStore

NAME = ChangelogName(0, 3, "default", 12, "a")
WHERE = "a.seg at byte 44"
BLOCK = seal_piece(NAME, 1, 0, b"content").data


def test_a_piece_is_read_back_and_framed_as_announced() -> None:
    assert read_content(BLOCK, NAME, 1, 0, WHERE) == b"content"
    assert len(BLOCK) == framing_bytes(NAME) + len(b"content")


@pytest.mark.parametrize(
    ("name", "piece", "pieces"),
    [
        (ChangelogName(0, 3, "default", 12, "b"), 1, 0),
        (ChangelogName(0, 4, "default", 12, "a"), 1, 0),
        (ChangelogName(0, 3, "other", 12, "a"), 1, 0),
        (ChangelogName(0, 3, "default", 13, "a"), 1, 0),
        (NAME, 0, 0),
        (NAME, 1, 2),
    ],
)
def test_the_block_of_another_changelog_or_piece_is_refused(
    name: ChangelogName, piece: int, pieces: int
) -> None:
    with pytest.raises(CorruptObjectError, match=r"a\.seg.*found piece 1 of 0/3/12_a.changelog"):
        read_content(BLOCK, name, piece, pieces, WHERE)


def test_every_flipped_bit_and_truncation_of_a_block_is_found() -> None:
    flipped = [
        BLOCK[:at] + bytes([BLOCK[at] ^ (1 << bit)]) + BLOCK[at + 1 :]
        for at in range(len(BLOCK))
        for bit in range(8)
    ]
    for damaged in [*flipped, *(BLOCK[:end] for end in range(len(BLOCK))), BLOCK + b"\0"]:
        with pytest.raises((CorruptObjectError, FormatVersionError), match=r"a\.seg"):
            read_content(damaged, NAME, 1, 0, WHERE)


def test_damage_and_a_newer_format_are_said_to_be_where_the_block_lies() -> None:
    where = "a.seg at byte 2316"
    hurt = BLOCK[:-1] + bytes([BLOCK[-1] ^ 1])
    with pytest.raises(CorruptObjectError) as damage:
        read_content(hurt, NAME, 1, 0, where)
    assert damage.value.what == "object a.seg at byte 2316 is damaged"
    newer = BLOCK[:4] + bytes([9]) + BLOCK[5:]
    with pytest.raises(FormatVersionError) as version:
        read_content(newer, NAME, 1, 0, where)
    assert version.value.what == "object a.seg at byte 2316"


def test_damage_says_what_to_do_for_a_spark_query() -> None:
    with pytest.raises(CorruptObjectError, match="restart the query from a batch"):
        read_content(BLOCK[:-1], NAME, 1, 0, WHERE)


def test_a_block_of_another_kind_is_refused() -> None:
    with pytest.raises(FormatVersionError, match="found METADATA"):
        read_content(seal_metadata(b"states", SeqNo(12)).data, NAME, 0, 1, WHERE)


@pytest.mark.parametrize("payload", [b"", b"\xff", b"\xff\xffname"])
def test_a_payload_too_short_for_its_name_is_refused(payload: bytes) -> None:
    block = seal_opaque(BlockKind.SPARK_CHANGELOG, payload, 1, SeqNo(12), compression_level=0)
    with pytest.raises(CorruptObjectError, match="a name and two numbers"):
        read_content(block.data, NAME, 0, 1, WHERE)


@pytest.mark.parametrize(("piece", "pieces"), [(-1, 0), (0, 2), (3, 3)])
def test_numbers_that_do_not_fit_are_not_written(piece: int, pieces: int) -> None:
    with pytest.raises(InvariantError, match=f"piece {piece} of {pieces}"):
        seal_piece(NAME, piece, pieces, b"")


def footer_at(data: bytes, size: int | None = None) -> object:
    async def read() -> object:
        store = MemoryStore()
        await store.put("a.seg", data)
        return await read_footer_at(store, "a.seg", len(data) if size is None else size)

    return asyncio.run(read())


def test_a_footer_is_read_from_the_segments_end() -> None:
    assert footer_at(golden.SEGMENT) == read_footer(golden.SEGMENT, "a.seg")[1]


def test_a_footer_longer_than_the_first_request_is_read_whole() -> None:
    names = [ChangelogName(0, 3, "default", version, "a" * 36) for version in range(3000)]
    data, _ = pack_pieces(golden.AUTHOR, "a.seg", [NewPiece(name, 0, 1, b"x") for name in names])
    assert footer_at(data) == read_footer(data, "a.seg")[1]


@pytest.mark.parametrize("size", [0, 10, 67, len(golden.SEGMENT) - 1, len(golden.SEGMENT) + 1])
def test_a_segment_that_is_shorter_or_longer_than_listed_is_found(size: int) -> None:
    with pytest.raises(CorruptObjectError, match=r"a\.seg"):
        footer_at(golden.SEGMENT, size)


def test_a_segment_of_the_embedded_runtime_is_refused() -> None:
    block = seal_metadata(b"states", SeqNo(1))
    data = pack(golden.AUTHOR, "a.seg", [BlockGroup("count", 0, [block])]).data
    with pytest.raises(CorruptObjectError, match=r"a\.seg.*footer index"):
        read_footer(data, "a.seg")


def test_a_footer_that_names_another_changelog_than_its_block_is_refused() -> None:
    one, _ = pack_pieces(golden.AUTHOR, "a.seg", [NewPiece(NAME, 0, 1, b"x")])
    other_name = ChangelogName(0, 3, "default", 12, "b")
    other, places = pack_pieces(golden.AUTHOR, "a.seg", [NewPiece(other_name, 0, 1, b"x")])
    end = places[0].offset + places[0].length
    with pytest.raises(CorruptObjectError, match="12_b"):
        read_footer(one[:end] + other[end:], "a.seg")
