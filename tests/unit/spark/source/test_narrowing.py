"""Options read less, give exactly the rows that a filter would leave, and are refused by name
when they are wrong. Sets of numbers as intervals behave as sets of numbers."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.property.profiles import looking
from tests.support.cli import lay_out
from tests.support.jobs import filled
from tests.unit.spark.source.reading import Row, bag, planned, read, request
from tidelog.errors import ConfigError
from tidelog.spark.source.options import (
    EVERYTHING,
    HIGHEST,
    NARROWING,
    Intervals,
    SourceOptions,
    read_options,
)
from tidelog.spark.source.views import VIEWS, checked, ddl

OPERATORS = ("source", "process", "process-sink", "nothing")

Condition = tuple[str, Callable[[Any], bool]]
"""The text of an option, and what it means for a value."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lay_out(tmp_path_factory.mktemp("store"), filled())


def numbers(most: int) -> st.SearchStrategy[Condition]:
    """Numbers and spans, some of them open."""

    def made(spans: list[tuple[int, int | None]]) -> Condition:
        texts = [f"{first}-{'' if more is None else first + more}" for first, more in spans]
        return ",".join(texts), lambda value: any(
            first <= value and (more is None or value <= first + more) for first, more in spans
        )

    span = st.tuples(st.integers(0, most), st.none() | st.integers(0, 9))
    return st.lists(span, min_size=1, max_size=3).map(made)


OPERATOR = st.lists(st.sampled_from(OPERATORS), min_size=1, max_size=2).map(
    lambda chosen: (",".join(chosen), lambda value: value in chosen)
)
SLOT, SUBTASK, SEQNO, KEY_GROUP = (numbers(most) for most in (11, 3, 2000, 17))
CONDITIONS: dict[str, dict[str, st.SearchStrategy[Condition]]] = {
    "checkpoints": {"checkpoint": SLOT},
    "blocks": {"operator": OPERATOR, "subtask": SUBTASK},
    "changes": {
        **{"operator": OPERATOR, "subtask": SUBTASK, "seqno": SEQNO, "keyGroup": KEY_GROUP}
    },
    "state": {"operator": OPERATOR, "subtask": SUBTASK, "keyGroup": KEY_GROUP},
}


@cache
def everything(store: Path, view: str) -> list[Row]:
    """All rows of a view."""
    return read(store, view=view, **_all(view))


def _all(view: str) -> dict[str, str]:
    return {"checkpoint": "all"} if view in {"changes", "state"} else {}


@pytest.mark.parametrize("view", CONDITIONS)
@looking(10)
@given(data=st.data())
def test_options_leave_the_rows_that_they_mean(view: str, store: Path, data: st.DataObject) -> None:
    known = CONDITIONS[view]
    names = data.draw(st.lists(st.sampled_from(sorted(known)), min_size=1, unique=True))
    conditions = {name: data.draw(known[name]) for name in names}
    found = read(store, view=view, **_all(view), **{n: text for n, (text, _) in conditions.items()})
    expected = [
        row
        for row in everything(store, view)
        if all(means(row[NARROWING[name]]) for name, (_, means) in conditions.items())
    ]
    assert bag(found) == bag(expected)


def test_all_that_a_view_can_be_narrowed_by_is_tested() -> None:
    for name, view in VIEWS.items():
        columns = {NARROWING[option] for option in CONDITIONS.get(name, ())}
        assert (
            columns | ({"checkpoint"} if name in {"changes", "state"} else set())
            == view.narrowed_by
        )


def test_what_is_not_wanted_is_not_planned(store: Path) -> None:
    def parts(**options: str) -> int:
        return len(planned(request(store, view="changes", partitionBytes=0, **options)))

    whole = parts(checkpoint="all")
    # The oldest of the checkpoints: what was written after it is none of its changes.
    assert 0 < parts(checkpoint="7") < whole
    assert 0 < parts(checkpoint="all", seqno="0-99") < whole
    assert parts(checkpoint="all", operator="nothing") == 0


def options(**given: str) -> SourceOptions:
    return read_options({"path": "/store", **given})


def test_names_of_options_are_compared_without_case() -> None:
    assert options(PARTITIONBYTES="8m").partition_bytes == 8 << 20
    assert options(partitionBytes="Auto").partition_bytes == "auto"
    assert options(partitionBytes="0").partition_bytes == 0
    assert options(partitionbytes="8m") == options(partitionBytes="8m")


def test_narrowing_options_are_about_the_columns_of_the_view() -> None:
    wanted = options(operator="a, b", subtask="0,2-", seqno="10-20", keyGroup="5").filter
    assert wanted.texts["operator"] == {"a", "b"}
    assert wanted.of("subtask") == Intervals.of([(0, 0), (2, 2**63 - 1)])
    assert wanted.of("key_group") == Intervals.between(5, 5)
    assert wanted.accepts(operator="a", subtask=2, seqno=20)
    assert not wanted.accepts(operator="c") and not wanted.accepts(subtask=1)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"view": "tables"}, "option view .*expected one of checkpoints, objects"),
        ({"oparator": "a"}, "option oparator .*no such option"),
        ({"checkpoint": "newest"}, "option checkpoint .*expected latest, all, or numbers"),
        (
            {"view": "checkpoints", "checkpoint": "latest"},
            "option checkpoint .*expected all, or numbers",
        ),
        ({"subtask": "a"}, "option subtask .*expected numbers such as"),
        ({"view": "state", "seqno": "3"}, "option seqno .*expected its use with view changes"),
        ({"view": "objects", "operator": "a"}, "option operator .*view blocks or changes or state"),
        ({"partitionBytes": "many"}, "option partitionBytes"),
        ({"decode": "yes"}, "option decode .*expected true or false"),
        ({"path": ""}, "location to load"),
    ],
)
def test_a_wrong_option_is_refused_by_its_name(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        options(**given)
    assert raised.value.action


def test_columns_are_those_asked_for_in_that_order() -> None:
    asked = request("/store", view="changes", columns="value, seqno,key_json")
    assert ddl(asked.columns) == "value binary, seqno bigint, key_json string"


@pytest.mark.parametrize("names", ["seqno,nothing", "seqno,seqno"])
def test_columns_that_are_none_or_twice_are_refused(names: str) -> None:
    with pytest.raises(ConfigError, match="columns of view changes"):
        request("/store", view="changes", columns=names)


def test_a_schema_chooses_columns_and_must_fit_them() -> None:
    fields = [("seqno", "bigint"), ("op", "string")]
    assert checked(VIEWS["changes"], fields) == tuple(fields)
    with pytest.raises(ConfigError, match=r"column seqno .*expected type bigint; found int"):
        checked(VIEWS["changes"], [("seqno", "int")])
    with pytest.raises(ConfigError, match="found missing"):
        checked(VIEWS["changes"], [("missing", "int")])


SMALL = st.integers(-3, 20)
PAIRS = st.lists(st.tuples(SMALL, SMALL), max_size=6)
UNIVERSE = range(-5, 25)


def numbers_in(spans: list[tuple[int, int]]) -> set[int]:
    return {number for first, last in spans for number in range(first, last + 1)}


@given(PAIRS, PAIRS)
def test_union_and_intersection_are_those_of_sets(
    one: list[tuple[int, int]], other: list[tuple[int, int]]
) -> None:
    a, b = Intervals.of(one), Intervals.of(other)
    assert {n for n in UNIVERSE if n in a} == numbers_in(one)
    assert {n for n in UNIVERSE if n in a & b} == numbers_in(one) & numbers_in(other)
    assert Intervals.of((each, each) for each in numbers_in(one)) == a
    assert a & EVERYTHING == a


@given(PAIRS, SMALL, SMALL)
def test_what_lies_within_a_range_is_cut_to_it(
    spans: list[tuple[int, int]], start: int, end: int
) -> None:
    parts = list(Intervals.of(spans).within(start, end))
    found = [number for first, last in parts for number in range(first, last)]
    assert found == sorted(numbers_in(spans) & set(range(start, end)))


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
    assert list(Intervals.parse(text).spans) == expected


@pytest.mark.parametrize("text", ["", "x", "1,,2", "-3", "6-4", "1-2-3", "1.5", "latest", "-"])
def test_any_other_text_is_refused(text: str) -> None:
    assert Intervals.parse(text) is None
