"""Records in chunks are the same, in the same order, as in one list, whatever comes and goes."""

from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.state import timeline
from tidelog.state.timeline import Records, TimedRecord, between, divided, inserted, newest

TIMES = st.integers(-9, 9)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), TIMES),
        st.tuples(st.just("append"), st.integers(0, 2)),
        st.tuples(st.just("take"), st.integers(1, 6)),
        st.tuples(st.just("look"), TIMES, TIMES),
    ),
    max_size=80,
)


@given(STEPS)
def test_records_in_chunks_are_those_of_one_list(steps: list[Any]) -> None:
    records: Records = []
    expected: list[TimedRecord] = []
    with mock.patch.object(timeline, "LONG", 3), mock.patch.object(timeline, "_CHUNK", 2):
        for number, (what, *values) in enumerate(steps):
            if what == "take":
                taken, records = divided(records, *values)
                assert taken == expected[: values[0]]
                del expected[: values[0]]
            elif what == "look":
                least, greatest = values
                met = [held for part in between(records, least, greatest, 2) for held in part]
                assert met == [held for held in expected if least <= held[0] <= greatest]
                earlier = [held for held in expected if held[0] <= least]
                assert newest(records, least) == (earlier[-1] if earlier else None)
            elif what == "append":
                held = ((expected[-1][0] if expected else 0) + values[0], number, None)
                records.append(held)
                expected.append(held)
            else:
                held = (values[0], number, None)
                records = inserted(records, held)
                expected = sorted([*expected, held])
            assert (list(records), len(records)) == (expected, len(expected))
            if expected:
                assert (records[0], records[-1]) == (expected[0], expected[-1])


@pytest.mark.parametrize("count", [timeline.LONG, 20 * timeline.LONG])
def test_one_record_among_many_changes_one_chunk(count: int) -> None:
    records = inserted([(2 * time, time, None) for time in range(count)], (count + 1, count, None))
    chunks = records.chunks(count + 1, count + 1) if not isinstance(records, list) else [records]
    assert sum(map(len, chunks)) < timeline.LONG, "not the more, the more there are"
    assert (count + 1, count, None) in [held for chunk in chunks for held in chunk]
