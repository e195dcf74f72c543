"""Reading less gives exactly the rows that a filter would leave."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import datasource

from tests.support.cli import lay_out
from tests.support.jobs import filled
from tests.unit.spark.source.reading import Row, bag, narrowed, planned, read, request
from tidelog.spark.source.datasource import push
from tidelog.spark.source.filters import Filter
from tidelog.spark.source.parts import Request
from tidelog.spark.source.views import VIEWS

NUMBER = st.integers(-2, 60) | st.integers(1500, 2000)
OPERATORS = ("source", "process", "process-sink", "nothing")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lay_out(tmp_path_factory.mktemp("store"), filled())


Condition = tuple[Any, Callable[[Any], bool]]
"""A filter of Spark's, and what it means for a value."""


def on_numbers(column: str, numbers: st.SearchStrategy[int]) -> st.SearchStrategy[Condition]:
    path = (column,)

    def made(kind: str, number: int, more: list[int]) -> Condition:
        known: dict[str, Condition] = {
            "=": (datasource.EqualTo(path, number), lambda value: value == number),
            "in": (datasource.In(path, tuple(more)), lambda value: value in more),
            "<": (datasource.LessThan(path, number), lambda value: value < number),
            "<=": (datasource.LessThanOrEqual(path, number), lambda value: value <= number),
            ">": (datasource.GreaterThan(path, number), lambda value: value > number),
            ">=": (datasource.GreaterThanOrEqual(path, number), lambda value: value >= number),
        }
        return known[kind]

    kinds = st.sampled_from(["=", "in", "<", "<=", ">", ">="])
    return st.builds(made, kinds, numbers, st.lists(numbers, max_size=4))


def on_operators() -> st.SearchStrategy[Condition]:
    names = st.lists(st.sampled_from(OPERATORS), min_size=1, max_size=2)
    return names.map(
        lambda chosen: (datasource.In(("operator",), tuple(chosen)), lambda v: v in chosen)
    )


CONDITIONS = {
    "checkpoints": {"slot": on_numbers("slot", st.integers(-1, 11))},
    "blocks": {
        "operator": on_operators(),
        "subtask": on_numbers("subtask", st.integers(-1, 3)),
        "first_seqno": on_numbers("first_seqno", NUMBER),
        "end_seqno": on_numbers("end_seqno", NUMBER),
    },
    "changes": {
        "slot": on_numbers("slot", st.integers(6, 10)),
        "operator": on_operators(),
        "subtask": on_numbers("subtask", st.integers(-1, 3)),
        "seqno": on_numbers("seqno", NUMBER),
        "key_group": on_numbers("key_group", st.integers(-1, 17)),
    },
    "state": {
        "slot": on_numbers("slot", st.integers(6, 10)),
        "operator": on_operators(),
        "subtask": on_numbers("subtask", st.integers(-1, 3)),
        "key_group": on_numbers("key_group", st.integers(-1, 17)),
    },
}


@cache
def everything(store: Path, view: str) -> list[Row]:
    """All rows of a view."""
    return read(store, view=view, **_slots(view))


def _slots(view: str) -> dict[str, str]:
    return {"slot": "all"} if view in {"changes", "state"} else {}


@pytest.mark.parametrize("view", CONDITIONS)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_filters_taken_leave_the_rows_that_they_mean(
    view: str, store: Path, data: st.DataObject
) -> None:
    known = CONDITIONS[view]
    columns = data.draw(st.lists(st.sampled_from(sorted(known)), min_size=1, max_size=3))
    conditions = [(column, data.draw(known[column])) for column in columns]
    asked = request(store, view=view, **_slots(view))
    wanted, left = push([one for _, (one, _) in conditions], asked.options.view, Filter())
    assert left == []
    expected = [
        row
        for row in everything(store, view)
        if all(means(row[column]) for column, (_, means) in conditions)
    ]
    assert bag(narrowed(asked, wanted)) == bag(expected)


def test_all_that_a_view_can_be_narrowed_by_is_tested() -> None:
    for name, view in VIEWS.items():
        assert set(CONDITIONS.get(name, ())) == view.narrowed_by


def test_filters_that_reading_cannot_apply_are_given_back_as_they_are() -> None:
    view = VIEWS["changes"]
    given_back = [
        datasource.EqualTo(("op",), "put"),
        datasource.EqualTo(("slot", "inner"), 3),
        datasource.EqualTo(("slot",), 3.5),
        datasource.In(("operator",), ("a", None)),
        datasource.In(("seqno",), (1, 2.5)),
        datasource.IsNotNull(("slot",)),
        datasource.Not(datasource.EqualTo(("slot",), 3)),
        datasource.StringStartsWith(("operator",), "a"),
        datasource.GreaterThan(("operator",), "a"),
    ]
    taken = [datasource.EqualTo(("operator",), "a"), datasource.LessThan(("seqno",), 5)]
    wanted, left = push([*taken, *given_back], view, Filter())
    assert [id(one) for one in left] == [id(one) for one in given_back]
    assert wanted.accepts(operator="a", seqno=4) and not wanted.accepts(seqno=5)


def test_what_is_not_wanted_is_not_planned(store: Path) -> None:
    asked = request(store, view="changes", slot="all", partitionBytes=0)
    whole = len(planned(asked))

    def parts(*pushed: Any) -> int:
        wanted, _ = push(pushed, asked.options.view, asked.filter)
        return len(planned(Request(asked.options, asked.columns, wanted)))

    # The oldest of the checkpoints: what was written behind it is none of its changes.
    assert 0 < parts(datasource.EqualTo(("slot",), 7)) < whole
    assert 0 < parts(datasource.LessThan(("seqno",), 100)) < whole
    assert parts(datasource.EqualTo(("operator",), "nothing")) == 0


@pytest.mark.parametrize("view", ["changes", "state"])
def test_options_narrow_as_filters_do(view: str, store: Path) -> None:
    operators = {row["operator"] for row in everything(store, view)}
    for operator in operators:
        found = read(store, view=view, slot="all", operator=operator, subtask=1, keyGroup="0-11")
        expected = [
            row
            for row in everything(store, view)
            if row["operator"] == operator and row["subtask"] == 1 and row["key_group"] <= 11
        ]
        assert bag(found) == bag(expected)
