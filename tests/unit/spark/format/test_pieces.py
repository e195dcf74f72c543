"""Names of changelogs, and their pieces in blocks and segments: none is read as another."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.golden import golden_spark as golden
from tests.support.spark_segments import NewPiece, pack_pieces, seal_piece
from tidelog.changelog.block import seal_metadata
from tidelog.changelog.segment import BlockGroup, pack
from tidelog.errors import CorruptObjectError, FormatVersionError, InvariantError
from tidelog.ids import SeqNo
from tidelog.spark.format.index import ChangelogPiece, IndexDocument, IndexEntry, read_index
from tidelog.spark.format.names import ChangelogName, roll_up_name, segment_name
from tidelog.spark.format.segment import framing_bytes, read_content, read_footer, read_footer_at
from tidelog.storage.document import checksum
from tidelog.storage.memory import MemoryStore

PARTS = st.text(min_size=1).filter(lambda text: "/" not in text)
NAMES = st.builds(
    ChangelogName,
    operator=st.integers(0, 2**63 - 1),
    partition=st.integers(0, 2**31 - 1),
    store=PARTS,
    version=st.integers(0, 2**63 - 1),
    id=PARTS,
)


@given(NAMES)
def test_a_name_is_parsed_back_from_its_path(name: ChangelogName) -> None:
    assert ChangelogName.parse(name.path) == name
    assert ChangelogName.of(name.directory, name.version, name.id) == name


def test_objects_have_fixed_names_and_the_default_store_has_no_directory() -> None:
    assert ChangelogName.parse("0/3/12_a.changelog") == ChangelogName(0, 3, "default", 12, "a")
    assert ChangelogName.parse("1/3/left/12_a.changelog") == ChangelogName(1, 3, "left", 12, "a")
    assert segment_name("0a1b2c3d", "1", 7) == "0a1b2c3d-1-00000007.seg"
    assert (roll_up_name(19), roll_up_name(20)) == ("0000000010.json", "0000000020.json")
    with pytest.raises(InvariantError, match="batch number from 0"):
        roll_up_name(-1)


@pytest.mark.parametrize(
    "path",
    [
        *("0/3/12.changelog", "0/3/12_a.zip", "0/3/12_.changelog", "03/3/12_a.changelog"),
        *("0/3/default/12_a.changelog", "0/3/a/b/12_a.changelog", "0/99999999999/12_a.changelog"),
        *("0/3/99999999999999999999_a.changelog", "x/0/3/12_a.changelog"),
        *("0/_metadata/12_a.changelog", "0/\u0663/12_a.changelog"),
    ],
)
def test_other_files_are_not_taken_for_changelogs(path: str) -> None:
    assert ChangelogName.parse(path) is None
    assert ChangelogName.of("0/3", 12, "a/1_b") is None


NAME = ChangelogName(0, 3, "default", 12, "a")
WHERE = "a.seg at byte 2316"
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


def footer_at(data: bytes, size: int | None = None) -> object:
    async def read() -> object:
        store = MemoryStore()
        await store.put("a.seg", data)
        return await read_footer_at(store, "a.seg", len(data) if size is None else size)

    return asyncio.run(read())


def test_a_footer_is_read_from_the_segments_end_also_if_it_takes_two_requests() -> None:
    names = [ChangelogName(0, 3, "default", version, "a" * 36) for version in range(3000)]
    long, _ = pack_pieces(golden.AUTHOR, "a.seg", [NewPiece(name, 0, 1, b"x") for name in names])
    for data in (golden.SEGMENT, long):
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


def read(body: str) -> IndexDocument:
    text = f'{{ "crc32c": "{checksum(body.encode())}", "body": {body} }}'
    return read_index(text, "commits/1")


def body_with(changelog: str) -> str:
    return (
        f'{{"changelogs":[{changelog}],"first":1,"format":1,"kind":"spark-index","last":1,'
        '"segments":[["s",200]]}'
    )


def test_fields_of_a_later_release_do_no_harm() -> None:
    body = (
        '{"changelogs":[["0/1",2,"a",9,[[0,44,99,7]],8]],"extra":1,"first":1,"format":1,'
        '"kind":"spark-index","last":1,"segments":[["s",200,"more"]]}'
    )
    entry = IndexEntry(ChangelogName(0, 1, "default", 2, "a"), 9, (ChangelogPiece("s", 44, 99),))
    assert read(body) == IndexDocument(1, 1, {"s": 200}, (entry,))


@pytest.mark.parametrize(
    "body",
    [
        body_with('["0/1",2,"a",9,[[1,44,99]]]'),
        body_with('["0/1",2,"a",9,[]]'),
        body_with('["0/1",2,"a",9,[[0,44]]]'),
        body_with('["0/1",3,"a",9,[[0,44,99]]]'),
        body_with('["0",2,"a",9,[[0,44,99]]]'),
        body_with('["0/1",2,"a",-9,[[0,44,99]]]'),
        body_with('["0/1","2","a",9,[[0,44,99]]]'),
        '{"format":1,"kind":"spark-index"}',
        '{"format":1,"kind":"slot"}',
        "[]",
    ],
)
def test_an_index_that_is_not_whole_is_refused_under_a_good_checksum(body: str) -> None:
    with pytest.raises(CorruptObjectError, match=r"commits/1 is damaged.*a restarted query writes"):
        read(body)


def test_an_index_of_a_newer_format_is_refused_by_name() -> None:
    with pytest.raises(FormatVersionError, match=r"commits/1.*format 2"):
        read('{"format":2,"new":{}}')
