"""Sets of numbers as intervals behave as sets of numbers.

Where the changes of a checkpoint lie: each once, in order; a log that lacks some is damage.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.spark.source.filters import EVERYTHING, HIGHEST, Intervals

NUMBERS = st.integers(-3, 20)
SPANS = st.lists(st.tuples(NUMBERS, NUMBERS), max_size=6)
UNIVERSE = range(-5, 25)


def numbers(spans: list[tuple[int, int]]) -> set[int]:
    return {number for first, last in spans for number in range(first, last + 1)}


@given(SPANS, SPANS)
def test_union_and_intersection_are_those_of_sets(
    one: list[tuple[int, int]], other: list[tuple[int, int]]
) -> None:
    a, b = Intervals.of(one), Intervals.of(other)
    assert {n for n in UNIVERSE if n in a} == numbers(one)
    assert {n for n in UNIVERSE if n in a & b} == numbers(one) & numbers(other)
    assert Intervals.of((each, each) for each in numbers(one)) == a
    assert a & EVERYTHING == a


@given(SPANS, NUMBERS, NUMBERS)
def test_what_lies_within_a_range_is_cut_to_it(
    spans: list[tuple[int, int]], start: int, end: int
) -> None:
    parts = list(Intervals.of(spans).within(start, end))
    found = [number for first, last in parts for number in range(first, last)]
    assert found == sorted(numbers(spans) & set(range(start, end)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3", [(3, 3)]),
        ("0,4-6", [(0, 0), (4, 6)]),
        (" 1 , 2 ", [(1, 2)]),
        ("100-", [(100, HIGHEST)]),
        ("0-", [(0, HIGHEST)]),
        ("4-6,5-9", [(4, 9)]),
    ],
)
def test_a_text_of_numbers_and_spans_is_read(text: str, expected: list[tuple[int, int]]) -> None:
    found = Intervals.parse(text)
    assert found is not None
    assert list(found.spans) == expected


@pytest.mark.parametrize("text", ["", "x", "1,,2", "-3", "6-4", "1-2-3", "1.5", "latest", "-"])
def test_any_other_text_is_refused(text: str) -> None:
    assert Intervals.parse(text) is None
