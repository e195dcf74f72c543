"""Options read less, and give exactly the rows that a filter would leave."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.cli import lay_out
from tests.support.jobs import filled
from tests.unit.spark.source.reading import Row, bag, planned, read, request
from tidelog.spark.source.options import NARROWING
from tidelog.spark.source.views import VIEWS

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
    "checkpoints": {"slot": SLOT},
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
    return {"slot": "all"} if view in {"changes", "state"} else {}


@pytest.mark.parametrize("view", CONDITIONS)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
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
        assert columns | ({"slot"} if name in {"changes", "state"} else set()) == view.narrowed_by


def test_what_is_not_wanted_is_not_planned(store: Path) -> None:
    def parts(**options: str) -> int:
        return len(planned(request(store, view="changes", partitionBytes=0, **options)))

    whole = parts(slot="all")
    # The oldest of the checkpoints: what was written after it is none of its changes.
    assert 0 < parts(slot="7") < whole
    assert 0 < parts(slot="all", seqno="0-99") < whole
    assert parts(slot="all", operator="nothing") == 0
