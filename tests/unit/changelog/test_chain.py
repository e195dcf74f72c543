"""The log chain stays contiguous through settling, truncation and restore."""

from itertools import pairwise

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.property.profiles import looking
from tidelog.changelog.block import seal_metadata
from tidelog.changelog.chain import Piece, SubtaskLogChain
from tidelog.changelog.change import ChangeBatch
from tidelog.changelog.segment import LogRange
from tidelog.errors import InvariantError
from tidelog.ids import KeyGroup, SeqNo


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


@looking(80, deep=25)
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
