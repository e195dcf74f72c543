"""What goes wrong without an error in a first job: the log says so once, or the call says why."""

import logging
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.pipelines import Outside, config, run
from tidelog import Count, IterableSource, Job, Session, Sliding, Tumbling
from tidelog.runtime.graph import Stream
from tidelog.storage.memory import MemoryStore

RECORDS = {str(split): list(range(split, 3000, 3)) for split in range(3)}


def warnings(caplog: pytest.LogCaptureFixture, build: Callable[[Stream], Stream]) -> list[Any]:
    """What the log warns of in a job of several subtasks: (event, operator)."""
    caplog.set_level(logging.WARNING)
    caplog.clear()
    job = Job("first")
    build(job.source(IterableSource(RECORDS))).sink(Outside())
    run(job, MemoryStore(), config(parallelism=3, buffer_records=100))
    return [
        (getattr(record, "event", ""), record.args["operator"])
        for record in caplog.records
        if isinstance(record.args, dict)
    ]


def forgets_to_return(record: int) -> Any:
    _ = record % 2 == 0


def returns_for_some(record: int) -> Any:
    return True if record > 2990 else None


@pytest.mark.parametrize(
    ("predicate", "warned"),
    [
        (forgets_to_return, [("function_without_answer", "even")]),
        (returns_for_some, []),
        (lambda record: False, []),
        (lambda record: None if record % 100 else 0, []),
    ],
)
def test_a_filter_that_returns_none_for_everything_is_named_once(
    predicate: Any, warned: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    assert warnings(caplog, lambda stream: stream.filter(predicate, name="even")) == warned


def forgets_the_sum(total: int, number: int) -> Any:
    _ = total, number


def sums_up_to_nothing(total: int, number: int) -> Any:
    return total + number or None


def reduced(windows: Any, combine: Any) -> Callable[[Stream], Any]:
    """A reduction of odd and even numbers, in windows or not."""

    def build(stream: Stream) -> Any:
        keyed = stream.event_time(lambda n: n * 1000).key_by(lambda n: n % 2)
        parts = keyed if windows is None else keyed.window(windows)
        return parts.aggregate(lambda n: n, combine, name="totals")

    return build


@pytest.mark.parametrize(
    "windows", [None, Tumbling("60 s"), Sliding("60 s", "20 s"), Session("9 s"), Count(10)]
)
def test_a_reduction_that_makes_none_of_everything_is_named_once(
    windows: Any, caplog: pytest.LogCaptureFixture
) -> None:
    without_return = warnings(caplog, reduced(windows, forgets_the_sum))
    assert without_return == [("function_without_answer", "totals")]
    assert warnings(caplog, reduced(windows, sums_up_to_nothing)) == []


def test_a_map_that_makes_none_of_everything_is_named_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    named = [("function_without_answer", "map")]
    assert warnings(caplog, lambda stream: stream.map(forgets_to_return)) == named
    assert warnings(caplog, lambda stream: stream.map(returns_for_some)) == []


@pytest.mark.parametrize(
    ("first_time", "warned"),
    [
        (1_790_000_000, [("times_in_seconds", "times")]),
        (1_790_000_000_000, []),
        (0, []),
        (-1_790_000_000, []),
    ],
)
def test_event_times_that_look_like_seconds_are_named_once(
    first_time: int, warned: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    def timed(stream: Stream) -> Stream:
        return stream.event_time(lambda n: first_time + n, name="times")

    assert warnings(caplog, timed) == warned


@pytest.mark.parametrize("name", ["window", "aggregate", "count", "deduplicate", "enrich"])
def test_an_operator_of_keyed_streams_says_to_call_key_by(name: str) -> None:
    stream: Any = Job("first").source(IterableSource([1]))
    with pytest.raises(AttributeError, match=rf"no .{name}.: call key_by first, .*\.{name}\("):
        getattr(stream, name)
    with pytest.raises(AttributeError, match="a Stream has no 'widnow'"):
        _ = stream.widnow
