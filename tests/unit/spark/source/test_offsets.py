"""Offsets survive their way through Spark's JSON; what is none is refused."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.errors import ConfigError, RestoreError
from tidelog.ids import SeqNo
from tidelog.spark.source.offsets import JobOffset, QueryOffset, following, layout_of

PLACES = st.tuples(st.text(min_size=1), st.integers(0, 1 << 20))
POSITIONS = st.dictionaries(PLACES, st.integers(0, 2**62).map(SeqNo), max_size=5)


@given(st.integers(-1, 2**40), POSITIONS)
def test_an_offset_of_a_job_comes_back_as_it_was(
    slot: int, positions: dict[tuple[str, int], SeqNo]
) -> None:
    offset = JobOffset(slot, positions)
    stored = json.loads(json.dumps(offset.document()))
    assert JobOffset.of(stored) == offset
    again = JobOffset(slot, dict(reversed(positions.items())))
    assert json.dumps(again.document()) == json.dumps(offset.document())
    assert layout_of([stored, stored]) == "job"


def test_an_offset_of_a_query_comes_back_as_it_was() -> None:
    stored = json.loads(json.dumps(QueryOffset(17).document()))
    assert QueryOffset.of(stored) == QueryOffset(17)
    assert layout_of([stored]) == "query"


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"layout": "job", "slot": 3},
        {"layout": "job", "slot": 3, "next": {"count": {"a": 1}}},
        {"layout": "query", "slot": 3, "next": {}},
        {"layout": "job", "slot": 3, "next": {}, "more": 1},
    ],
)
def test_what_is_no_offset_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="the offset of a stream"):
        JobOffset.of(document)


def test_offsets_of_two_layouts_do_not_mix() -> None:
    with pytest.raises(ConfigError, match="new checkpointLocation"):
        layout_of([QueryOffset(3).document(), JobOffset(3, {}).document()])
    with pytest.raises(ConfigError, match="new checkpointLocation"):
        layout_of([{}])


def test_the_next_offset_has_changes_behind_the_one_before() -> None:
    place = ("count", 0)
    read = JobOffset(7, {place: SeqNo(10)}).document()
    assert following(read, JobOffset(9, {place: SeqNo(10)}).document()) == read
    newer = JobOffset(9, {place: SeqNo(11)}).document()
    assert following(read, newer) == newer
    assert following(QueryOffset(3).document(), QueryOffset(4).document()) == (
        QueryOffset(4).document()
    )
    assert following(QueryOffset(3).document(), QueryOffset(3).document())["batch"] == 3


def test_a_stream_does_not_go_back() -> None:
    place = ("count", 0)
    read = JobOffset(7, {place: SeqNo(10)}).document()
    with pytest.raises(RestoreError, match=r"slot 7, up to which it has read.*found 3 as"):
        following(read, JobOffset(3, {place: SeqNo(40)}).document())
    with pytest.raises(RestoreError, match="found -1 as the newest"):
        following(QueryOffset(3).document(), QueryOffset(-1).document())
