"""Segments: every block is found again, and no damage goes unseen.

The log chain stays contiguous through settling, truncation and restore.
"""

from itertools import pairwise

import google_crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.profiles import looking
from tidelog.changelog.block import SealedBlock, seal, seal_metadata
from tidelog.changelog.chain import Piece, SubtaskLogChain
from tidelog.changelog.change import ChangeBatch
from tidelog.changelog.segment import BlockGroup, LogRange, SegmentAuthor, pack, read_footer
from tidelog.errors import CorruptObjectError, FormatVersionError, InvariantError
from tidelog.ids import Generation, KeyGroup, SeqNo

AUTHOR = SegmentAuthor(Generation(12), "0123456789abcdef", 7)


def batch(first: int, *groups: int) -> ChangeBatch:
    keys = [group.to_bytes(2, "big") + b"\0\1key" for group in groups]
    return ChangeBatch(SeqNo(first), keys, [b"v"] * len(keys))


def group(operator: str, subtask: int, first: int, *sizes: int) -> BlockGroup:
    blocks = [seal_metadata(b"states", SeqNo(first))]
    for size in sizes:
        blocks.append(seal(batch(first, *range(size))))
        first += size
    return BlockGroup(operator, subtask, blocks)


SMALL = pack(AUTHOR, "segments/a.seg", [group("count", 0, 5, 2, 1), group("count", 1, 9, 3)])


@given(
    st.lists(
        st.tuples(st.text(), st.integers(0, 100), st.lists(st.integers(1, 5), max_size=4)),
        max_size=5,
    )
)
@settings(max_examples=60)
def test_the_footer_finds_every_block(groups: list[tuple[str, int, list[int]]]) -> None:
    given_groups = [group(name, subtask, 3, *sizes) for name, subtask, sizes in groups]
    packed = pack(AUTHOR, "s", given_groups)
    segment = read_footer(packed.data, "s")
    assert segment.author == AUTHOR
    found = [
        (entry.operator, entry.subtask, packed.data[entry.offset : entry.offset + entry.length])
        for entry in segment.entries
    ]
    assert found == [(g.operator, g.subtask, b.data) for g in given_groups for b in g.blocks]


def test_every_flipped_bit_is_detected() -> None:
    for position in range(len(SMALL.data)):
        for bit in range(8):
            data = bytearray(SMALL.data)
            data[position] ^= 1 << bit
            with pytest.raises((CorruptObjectError, FormatVersionError)):
                read_footer(bytes(data), "s")


def test_every_truncation_is_detected() -> None:
    for length in range(len(SMALL.data)):
        with pytest.raises(CorruptObjectError):
            read_footer(SMALL.data[:length], "s")


@pytest.mark.parametrize("position", [4, len(SMALL.data) - 9])
def test_a_newer_version_in_header_or_trailer_is_refused_by_name(position: int) -> None:
    data = bytearray(SMALL.data)
    data[position] = 2
    with pytest.raises(FormatVersionError, match=r"segments/a\.seg"):
        read_footer(bytes(data), "segments/a.seg")


def test_a_footer_that_does_not_fit_the_blocks_is_refused() -> None:
    other = pack(AUTHOR, "s", [group("count", 0, 6, 2, 1), group("count", 1, 9, 3)])
    footer_at = SMALL.ranges[-1].offset + SMALL.ranges[-1].length
    mixed = SMALL.data[:footer_at] + other.data[footer_at:]
    block = r"a block of kind 2 of operator 'count', subtask 0, .* from number {}, and key groups"
    expected = f"; expected {block.format(6)}.*; found {block.format(5)}"
    with pytest.raises(CorruptObjectError, match=f"damaged at byte 44{expected}"):
        read_footer(mixed, "s")


def test_a_footer_that_leaves_out_a_block_is_refused() -> None:
    whole = pack(AUTHOR, "s", [group("count", 0, 5, 2, 1)])
    end = whole.ranges[0].offset + whole.ranges[0].length
    surplus = seal(batch(8, 1)).data
    moved = bytearray(whole.data[:end] + surplus + whole.data[end:])
    trailer_at = len(moved) - 24
    moved[trailer_at : trailer_at + 8] = (end + len(surplus)).to_bytes(8, "little")
    crc = google_crc32c.value(bytes(moved[end + len(surplus) : trailer_at + 16]))
    moved[trailer_at + 16 : trailer_at + 20] = crc.to_bytes(4, "little")
    with pytest.raises(CorruptObjectError, match="does not name"):
        read_footer(bytes(moved), "s")


@pytest.mark.parametrize(
    "blocks",
    [
        [],
        [seal(batch(0, 1)), seal(batch(2, 1))],
        [seal(batch(0, 1, 2)), seal(batch(1, 1))],
        [seal(batch(1, 1)), seal(batch(0, 1))],
    ],
    ids=["empty", "gap", "overlap", "backwards"],
)
def test_only_blocks_without_a_gap_are_packed(blocks: list[SealedBlock]) -> None:
    with pytest.raises(InvariantError, match="operator o, subtask 4"):
        pack(AUTHOR, "s", [BlockGroup("o", 4, blocks)])


def piece(first: int, count: int = 1) -> Piece:
    keys = [n.to_bytes(8, "big") for n in range(count)]
    return Piece.of_batch(ChangeBatch(SeqNo(first), keys, [b"v"] * count), 0.0)


def durable(first: int, end: int, segment: str = "s") -> LogRange:
    return LogRange(segment, 100 + first, 10, SeqNo(first), SeqNo(end), KeyGroup(0), KeyGroup(1))


def test_a_restored_chain_goes_on_where_its_ranges_end() -> None:
    chain = SubtaskLogChain("o", 0, [durable(0, 5), durable(5, 9)])
    assert chain.end == 9
    assert chain.changes == 9
    with pytest.raises(InvariantError):
        chain.append(piece(8))
    chain.append(piece(9))


def test_truncation_drops_what_a_materialization_covers_and_keeps_what_it_cuts() -> None:
    chain = SubtaskLogChain("o", 0, [durable(0, 5), durable(5, 9, "cut")])
    chain.append(piece(9))
    chain.truncate(SeqNo(7))
    assert [r.segment for r in chain.capture().ranges] == ["cut"]
    chain.truncate(SeqNo(10))
    assert chain.end is None


def test_metadata_written_behind_a_materialization_stays_with_the_new_log() -> None:
    chain = SubtaskLogChain("o", 0)
    chain.append(piece(0, 4))
    chain.append(Piece.of_block(seal_metadata(b"{}", SeqNo(4)), 0.0))
    chain.append(piece(4))
    chain.truncate(SeqNo(4))
    assert [(p.first, p.end) for p in chain.capture().pieces] == [(4, 4), (4, 5)]


@looking(80)
@given(st.data())
def test_any_order_of_uploads_and_truncations_keeps_what_was_captured_contiguous(
    data: st.DataObject,
) -> None:
    chain = SubtaskLogChain("o", 0)
    in_flight: list[list[Piece]] = []
    queued: list[Piece] = []
    end = truncated = 0
    for step in range(data.draw(st.integers(1, 40))):
        match data.draw(st.sampled_from(["write", "write", "upload", "land", "fail", "cut"])):
            case "write":
                count = data.draw(st.integers(1, 3))
                queued.append(piece(end, count))
                chain.append(queued[-1])
                end += count
            case "upload" if queued:
                in_flight.append(queued)
                queued = []
            case "land" if in_flight:
                taken = in_flight.pop(data.draw(st.integers(0, len(in_flight) - 1)))
                runs: list[list[Piece]] = []
                for each in sorted(taken, key=lambda p: p.first):
                    if runs and runs[-1][-1].end == each.first:
                        runs[-1].append(each)
                    else:
                        runs.append([each])
                for run in runs:
                    for each in run:
                        each.durable = durable(run[0].first, run[-1].end, f"s{step}")
                chain.settle()
            case "fail" if in_flight:
                queued = in_flight.pop(0) + queued
            case "cut" if end:
                truncated = data.draw(st.integers(truncated, end))
                chain.truncate(SeqNo(truncated))
        capture = chain.capture()
        parts = [(r.first, r.end) for r in capture.ranges]
        for each in capture.pieces:
            span = each.durable or each
            if not parts or parts[-1] != (span.first, span.end):
                parts.append((span.first, span.end))
        if parts:
            assert parts[0][0] <= truncated
            assert all(a[1] == b[0] for a, b in pairwise(parts))
            assert parts[-1][1] == end
        else:
            assert truncated == end
