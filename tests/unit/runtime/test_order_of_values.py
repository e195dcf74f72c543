"""Everything that compares values has one order: NaN is the greatest, whichever came first."""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from itertools import permutations
from math import inf, nan
from operator import itemgetter
from typing import Any

import pytest

from tests.unit.runtime.test_reductions import Build, emitted
from tidelog import Count, KeyedStream, Session, Sliding, Tumbling

value_of = itemgetter(2)
NUMBERS = (1.0, nan, 5.0, 3.0)


@dataclass(frozen=True, order=True)
class Grade:
    points: float
    name: str


def results(build: Build, values: tuple[Any, ...], apart: int = 1) -> list[str]:
    """The emitted values as text, in which NaN equals NaN."""
    out = emitted(build, [("k", n * apart, value) for n, value in enumerate(values)])
    return [str(each[-1]) for each in out]


def windowed(windows: Any, function: Callable[[Any], Any]) -> Build:
    return lambda keyed: function(keyed.window(windows))


def everywhere(function: Callable[[Any], Any]) -> list[Build]:
    kinds = (Tumbling(100), Sliding(100, 100), Session(100), Count(4))
    return [function, *(windowed(kind, function) for kind in kinds)]


def greatest(keyed: Any) -> Any:
    return keyed.max(value_of)


def least(keyed: Any) -> Any:
    return keyed.min(value_of)


def top(keyed: Any) -> Any:
    return keyed.top(2, by=value_of)


@pytest.mark.parametrize("build", everywhere(greatest))
def test_the_greatest_value_is_nan_in_any_order_of_arrival(build: Build) -> None:
    for values in permutations(NUMBERS):
        assert results(build, values) == ["nan"]


@pytest.mark.parametrize("build", everywhere(least))
def test_the_least_value_is_the_least_number_in_any_order_of_arrival(build: Build) -> None:
    for values in permutations(NUMBERS):
        assert results(build, values) == ["1.0"]


@pytest.mark.parametrize("build", everywhere(top))
def test_nan_is_the_first_of_the_greatest_and_no_number_is_lost(build: Build) -> None:
    for values in permutations(NUMBERS):
        (text,) = results(lambda keyed: build(keyed).map(chosen), values)
        assert text == "[nan, 5.0]"


def chosen(out: tuple[Any, ...]) -> tuple[Any, ...]:
    return (*out[:-1], [record[2] for record in out[-1]])


def test_slices_and_sessions_that_become_one_have_the_same_order() -> None:
    def tops(windows: Any) -> list[str]:
        build = windowed(windows, top)
        return results(lambda keyed: build(keyed).map(chosen), (1.0, nan, 5.0, 3.0), apart=10)

    assert tops(Sliding(40, 20))[1] == "[nan, 5.0]"
    joined = [("k", 0, nan), ("k", 1, 1.0), ("k", 200, inf), ("k", 201, nan), ("k", 100, 7.0)]

    def sessions(keyed: KeyedStream) -> Any:
        return keyed.window(Session(100)).top(3, by=value_of).map(chosen)

    assert [str(each[-1]) for each in emitted(sessions, joined)] == ["[nan, nan, inf]"]


@pytest.mark.parametrize(
    ("values", "greatest_of", "least_of"),
    [
        (((1.0, "b"), (nan, "a"), (5.0, "c")), (nan, "a"), (1.0, "b")),
        (((2, nan), (2, 7.0), (1, nan)), (2, nan), (1, nan)),
        (((float("nan"), 2), (float("nan"), 1)), (nan, 2), (nan, 1)),
        ((Decimal(1), Decimal("NaN"), Decimal(5)), Decimal("NaN"), Decimal(1)),
        ((Grade(1.0, "b"), Grade(nan, "a"), Grade(5.0, "c")), Grade(nan, "a"), Grade(1.0, "b")),
    ],
    ids=["tuples", "last part", "nan twice", "decimals", "dataclasses"],
)
def test_nan_is_the_greatest_also_within_values(
    values: tuple[Any, ...], greatest_of: Any, least_of: Any
) -> None:
    for arrived in permutations(values):
        assert results(greatest, arrived) == [str(greatest_of)]
        assert results(least, arrived) == [str(least_of)]


def test_of_equal_records_the_first_stays_first_where_a_list_is_full() -> None:
    records = [("k", n, n % 5, n) for n in range(40)]
    out = emitted(lambda keyed: keyed.top(10, by=value_of), records)
    assert [(r[2], r[3]) for r in out[0][1]] == [(4, n) for n in range(4, 40, 5)] + [(3, 3), (3, 8)]
