"""A state compared by value with what a user's function returns."""

import asyncio
import datetime
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.jobs import WORDS, config, filled, run, store_of, virtual_effects, word_count
from tests.unit.verify.stores import tiny
from tidelog.checkpoint.manifest import StateInfo
from tidelog.errors import ConfigError, RestoreError, UserFunctionError
from tidelog.storage.memory import MemoryStore
from tidelog.storage.port import ObjectStore
from tidelog.verify.engines import LocalEngine
from tidelog.verify.expected.comparison import SHOWN, TruthResult
from tidelog.verify.expected.function import Expected, Request, load_function
from tidelog.verify.expected.of_store import StoreTruth
from tidelog.verify.expected.values import Shape, canonical, stored_values
from tidelog.verify.unit import WorkerConfig

COUNTS = {f"word-{number}": 20 for number in range(40)}
"""What all 800 words of the jobs under test come to: both splits have 400 of them."""


def compared(
    function: Callable[..., Any],
    store: ObjectStore | None = None,
    slot: int = 9,
    operator: str | None = "process",
    state: str | None = "count",
) -> TruthResult:
    store = store or store_of(filled())
    effects = virtual_effects()
    engine = LocalEngine(store, effects, WorkerConfig(store.url))
    question = Expected("truths:it", function, operator, state)
    return asyncio.run(StoreTruth(store, effects, engine, None, question).compare(slot))


class Named(NamedTuple):
    count: int


@pytest.mark.parametrize(
    "answer",
    [
        COUNTS,
        list(COUNTS.items()),
        iter(COUNTS.items()),
        {word: {"count": count} for word, count in COUNTS.items()},
        {word: (count,) for word, count in COUNTS.items()},
        {word: float(count) for word, count in COUNTS.items()},
        [((word,), Named(count)) for word, count in COUNTS.items()],
    ],
    ids=["dict", "pairs", "iterator", "objects", "tuples", "floats", "rows"],
)
def test_equal_values_are_equal_however_they_are_given(answer: Any) -> None:
    found = compared(lambda asked: answer)
    assert found.equal and found.keys == found.expected_keys == 40
    assert (found.checkpoint, found.operator, found.state) == (9, "process", "count")


def test_other_missing_and_additional_keys_are_told() -> None:
    wrong = {**COUNTS, "word-3": 19, "new": 1}
    del wrong["word-7"]
    found = compared(lambda asked: wrong)
    assert not found.equal and found.differing == 3
    assert {(d.key, d.state, d.expected) for d in found.differences} == {
        ('"word-3"', "20", "19"),
        ('"word-7"', "20", None),
        ('"new"', None, "1"),
    }


def test_of_many_differences_a_few_are_shown_and_all_are_counted() -> None:
    found = compared(lambda asked: {})
    assert found.differing == 40 and len(found.differences) == SHOWN


def test_the_function_is_told_how_far_the_input_was_read() -> None:
    seen: list[Request] = []

    def truth(asked: Request) -> dict[str, int]:
        seen.append(asked)
        counts: dict[str, int] = {}
        for split in asked.positions["source"].values():
            for word in WORDS[: split["position"]]:
                counts[word] = counts.get(word, 0) + 1
        return counts

    for slot in (2, 5, 8):
        assert compared(truth, store_of(tiny()), slot, None, None).equal
    assert [asked.final for asked in seen] == [False, False, True]
    assert seen[0].operator == "count" and seen[0].state == "aggregate" and seen[0].spark is None
    assert seen[0].positions["source"]["left"]["position"] < 400


def test_a_function_without_parameters_is_called_without() -> None:
    assert load_function("tests.unit.verify.test_truth:everything")(None) == COUNTS  # type: ignore[arg-type]


def everything() -> dict[str, int]:
    return COUNTS


def test_lists_and_maps_are_compared_as_a_whole() -> None:
    words = [f"word-{number}" for number in range(40)]
    history = {word: [(len(word), word)] * 20 for word in words}
    assert compared(lambda asked: history, state="history").equal
    short = {**history, "word-5": history["word-5"][1:]}
    assert compared(lambda asked: short, state="history").differing == 1

    letters = {w: dict.fromkeys(sorted(set(w)), (20, 0.5)) for w in words}
    assert compared(lambda asked: letters, state="letters").equal
    one_less = {**letters, "word-1": {"w": (20, 0.5)}}
    assert compared(lambda asked: one_less, state="letters").differing == 1


@pytest.mark.parametrize(
    ("operator", "state", "message"),
    [
        ("process", None, "name it with --operator and --state"),
        (None, "nothing", "found 0 of them; the checkpoint has process count"),
        ("process", "$timers-by-key", "a value per key"),
    ],
)
def test_a_state_that_is_not_clear_is_an_error(
    operator: str | None, state: str | None, message: str
) -> None:
    with pytest.raises(ConfigError, match=message.replace("$", r"\$")):
        compared(lambda asked: COUNTS, operator=operator, state=state)


def failing(asked: Request) -> Iterator[tuple[str, int]]:
    yield "word-1", 20
    raise ValueError("the input is gone")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (7, "a int"),
        ("text", "a str"),
        ([("only-a-key",)], "only-a-key"),
        ([("key", 1), ("key", 2)], "every key once"),
        ({"key": object()}, "object"),
    ],
)
def test_an_answer_that_is_none_is_an_error(answer: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        compared(lambda asked: answer)


def test_an_error_of_the_function_is_reported_as_its_own() -> None:
    question = load_function("tests.unit.verify.test_truth:failing")
    with pytest.raises(UserFunctionError, match="the input is gone"):
        compared(question)
    broken = load_function("tests.unit.verify.test_truth:raising")
    with pytest.raises(UserFunctionError, match="ZeroDivisionError"):
        compared(broken)


def raising(asked: Request) -> None:
    raise ZeroDivisionError


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("truths", "module:function"),
        ("no_such_module_here:f", "no module 'no_such_module_here'"),
        ("tests.unit.verify.test_truth:nothing", "no 'nothing' in it"),
        ("tests.unit.verify.test_truth:COUNTS", "a dict"),
    ],
)
def test_a_name_that_is_wrong_is_an_error(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_function(name)


def test_a_module_that_cannot_be_imported_is_the_users_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_truths.py").write_text("import no_such_library_at_all\n")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserFunctionError, match="no_such_library_at_all"):
        load_function("broken_truths:f")


def test_a_word_count_at_every_checkpoint_equals_a_count_of_what_was_read() -> None:
    store = MemoryStore()
    run(store, word_count(), config(table="memory"))
    assert compared(lambda asked: COUNTS, store, 8, None, None).equal


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2.0, "2"),
        (2.5, "2.5"),
        (float("nan"), '"nan"'),
        (True, "true"),
        (b"\0\1", '"AAE="'),
        ((1, [2, (3,)]), "[1,[2,[3]]]"),
        ({"b": 1, "a": (1.0,)}, '{"a":[1],"b":1}'),
        ({1: "x", (2,): "y"}, '{"1":"x","2":"y"}'),
        (datetime.date(2026, 1, 2), '"2026-01-02"'),
        (Decimal("1.50"), '"1.50"'),
        (None, "null"),
    ],
)
def test_values_have_one_text(value: Any, text: str) -> None:
    assert canonical(value) == text


def test_fields_stand_in_the_order_of_the_schema() -> None:
    shape = Shape.of(StateInfo(1, "totals", "value", ("sum long, count long",)))
    assert shape.text({"count": 2, "sum": 9}) == shape.text((9, 2)) == "[9,2]"
    assert shape.text({"count": 2}) != shape.text((9, 2))


def test_a_row_that_cannot_be_decoded_is_an_error() -> None:
    info = StateInfo(1, "totals", "value", ("sum long",))
    with pytest.raises(RestoreError, match="state 'totals'"):
        list(stored_values(info, [(b"\0\0\0\1\xa1k", b"\xff\xff")]))
