"""Functions that change their records, reuse their objects, stop iteration or exit: what one does
reaches no other, and none ends a job as if its data were over."""

import asyncio
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.first_jobs.programs import run
from tests.support.depth import one_by_one
from tidelog import (
    ConfigError,
    Count,
    FileSink,
    ForeachSink,
    IterableSource,
    Job,
    KeyedStream,
    RateSource,
    Row,
    Session,
    Sliding,
    StatefulProcessor,
    StatefulProcessorHandle,
    Stream,
    TidelogError,
    Tumbling,
    UserFunctionError,
)

Function = Callable[..., Any]


def rows(count: int = 3000) -> list[dict[str, Any]]:
    return [{"n": n, "tags": [n]} for n in range(count)]


def mark(record: dict[str, Any]) -> dict[str, Any]:
    record["n"] = -1
    record["tags"].append("changed")
    return record


@one_by_one(parallelism=[1, 2], first=[True, False])
def test_a_branch_sees_nothing_of_what_another_does_to_its_records(
    tmp_path: Path, first: bool, parallelism: int
) -> None:
    seen: list[Any] = []
    marked: list[Any] = []
    job = Job("branches")
    stream = job.source(IterableSource(rows)).map(dict)

    def changes() -> None:
        stream.map(mark).sink(ForeachSink(marked.append), name="marked")

    if first:
        changes()
    stream.map(lambda r: (r["n"], tuple(r["tags"]))).sink(ForeachSink(seen.append), name="seen")
    if not first:
        changes()
    run(job, tmp_path / "store", parallelism=parallelism)
    assert sorted(seen) == [(n, (n,)) for n in range(3000)]
    assert sorted(r["tags"][0] for r in marked) == list(range(3000))
    assert {(r["n"], r["tags"][1]) for r in marked} == {(-1, "changed")}


def test_the_records_of_a_list_are_those_of_every_run(tmp_path: Path) -> None:
    listed = rows()

    def failing(record: dict[str, Any]) -> dict[str, Any]:
        if record["n"] == 2000:
            raise ValueError("not yet")
        return mark(record)

    for function in (failing, mark):
        seen: list[Any] = []
        job = Job("list")
        job.source(IterableSource(listed)).map(function).sink(ForeachSink(seen.append))
        with nullcontext() if function is mark else pytest.raises(UserFunctionError):
            run(job, tmp_path / "store")
    assert listed == rows()
    assert {len(record["tags"]) for record in seen} == {2}


def test_every_subtask_has_a_rule_of_its_own(tmp_path: Path) -> None:
    counted: list[int] = []

    def learn(rule: dict[str, int], known: Any) -> None:
        rule["times"] += 1
        known["rule"] = rule

    def apply(record: int, known: Any) -> Iterator[int]:
        yield known["rule"]["times"] if "rule" in known else 1

    job = Job("rules")
    rules = job.source(IterableSource(lambda: iter([{"times": 0}])), name="rules")
    numbers = job.source(IterableSource(range(4000)), name="numbers").rebalance()
    found = numbers.with_broadcast(rules, on_rule=learn, on_record=apply)
    found.sink(ForeachSink(counted.append))
    run(job, tmp_path / "store", parallelism=4)
    assert set(counted) == {1}


def emptied(records: list[Any]) -> list[Any]:
    return [records.pop() for _ in range(len(records))]


LIST: list[Any] = []


def in_one_list(records: list[Any]) -> list[Any]:
    LIST[:] = records
    return LIST


@one_by_one(function=[emptied, in_one_list], spread=[Stream.rebalance, Stream.broadcast])
def test_the_list_of_a_function_of_whole_buffers_is_its_own(
    tmp_path: Path, spread: Callable[[Stream], Stream], function: Function
) -> None:
    made: list[int] = []
    seen: list[int] = []
    job = Job("whole-buffers")
    numbers = job.source(IterableSource(range(20_000)), parallelism=1)
    spread(numbers).map_batches(function).rebalance().sink(ForeachSink(made.append), name="made")
    numbers.map(int).sink(ForeachSink(seen.append), name="seen")
    run(job, tmp_path / "store", parallelism=2)
    copies = 2 if spread is Stream.broadcast else 1
    assert sorted(made) == sorted([*range(20_000)] * copies) and seen == [*range(20_000)]


def reused(records: Iterable[Any]) -> Iterator[dict[str, int]]:
    one: dict[str, int] = {}
    for n in records:
        one["n"] = n
        yield one


class Colour(Enum):
    RED = "r"


@dataclass(frozen=True)
class Fixed:
    name: str


class Reusing(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        """This processor declares no state."""

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Any:
        return reused(rows)


KEPT: dict[str, int] = {}


def updated(n: int) -> dict[str, int]:
    KEPT["n"] = n
    return KEPT


NUMBERS = IterableSource(range(100))


def enriched(
    job: Job, join: Callable[[int, Any], Any], time: Literal["event", "processing"]
) -> Stream:
    """Numbers with a row of a table, of which there is one for all."""
    numbers = job.source(NUMBERS, name="numbers").event_time(int).key_by(lambda n: 1)
    table = job.source(IterableSource([{"n": 0}]), name="table").event_time(lambda row: 0)
    return numbers.enrich(table.key_by(lambda row: 1), join, time=time)


GIVES_ONE_OBJECT: dict[str, Callable[[Job], Stream]] = {
    "flat_map": lambda job: job.source(NUMBERS).flat_map(lambda n: reused([n, n + 1])),
    "flat_map, once a call": lambda job: job.source(NUMBERS).flat_map(lambda n: [updated(n)]),
    "map": lambda job: job.source(NUMBERS).map(updated),
    "source": lambda job: job.source(IterableSource(lambda: reused(range(100)))),
    "rate": lambda job: job.source(RateSource(None, limit=100, make=updated)),
    "processor": lambda job: job.source(NUMBERS).key_by(lambda n: 1).transform_with_state(Reusing),
    "records of a window": lambda job: (
        job.source(NUMBERS).key_by(lambda n: 1).window(Count(2)).records(lambda key, ns: updated(1))
    ),
    "enrich": lambda job: enriched(job, lambda n, row: updated(n), "event"),
    "enrich by processing time": lambda job: enriched(job, lambda n, row: updated(n), "processing"),
}


@pytest.mark.parametrize("name", GIVES_ONE_OBJECT)
def test_one_object_given_twice_is_refused_at_once(name: str, tmp_path: Path) -> None:
    found: list[Any] = []
    job = Job("reused")
    GIVES_ONE_OBJECT[name](job).sink(ForeachSink(found.append))
    with pytest.raises(UserFunctionError, match="the same dict was given twice"):
        run(job, tmp_path / "store")
    assert found == []


def test_what_nobody_can_change_may_be_given_twice(tmp_path: Path) -> None:
    found: list[Any] = []
    repeated = [{"n": 1}] * 50
    same = [Row(a=1), "x", (1, ("y",)), Colour.RED, Fixed("z"), frozenset({1}), Decimal(1)]
    job = Job("repeated")
    numbers = job.source(NUMBERS, name="numbers").flat_map(lambda n: same)
    numbers.sink(ForeachSink(found.append), name="one")
    # A list that has one object many times is the user's own, and so is what is made of it.
    listed = job.source(IterableSource(repeated), name="list").map(lambda r: r)
    listed.flat_map(lambda r: [r]).sink(ForeachSink(found.append), name="two")
    run(job, tmp_path / "store")
    assert len(found) == 750


def stop(*_: Any) -> Any:
    raise StopIteration


def leave(*_: Any) -> Any:
    sys.exit(0)


def cancel(*_: Any) -> Any:
    raise asyncio.CancelledError


def keyed(job: Job) -> KeyedStream:
    return job.source(NUMBERS).event_time(lambda n: n).key_by(lambda n: n % 3)


CALLS: dict[str, Callable[[Job, Function], Stream]] = {
    "map": lambda job, f: job.source(NUMBERS).map(f),
    "filter": lambda job, f: job.source(NUMBERS).filter(f),
    "flat_map": lambda job, f: job.source(NUMBERS).flat_map(f),
    "map_batches": lambda job, f: job.source(NUMBERS).map_batches(f),
    "event_time": lambda job, f: job.source(NUMBERS).event_time(f),
    "key_by": lambda job, f: job.source(NUMBERS).key_by(f).aggregate(len, max),
    "value_of": lambda job, f: keyed(job).aggregate(f, max),
    "combine": lambda job, f: keyed(job).aggregate(abs, f),
    "tumbling value_of": lambda job, f: keyed(job).window(Tumbling(10)).aggregate(f, max),
    "tumbling combine": lambda job, f: keyed(job).window(Tumbling(10)).aggregate(abs, f),
    "sliding value_of": lambda job, f: keyed(job).window(Sliding(10, 5)).aggregate(f, max),
    "sliding combine": lambda job, f: keyed(job).window(Sliding(10, 5)).aggregate(abs, f),
    "window_records": lambda job, f: keyed(job).window(Tumbling(10)).records(f),
    "make": lambda job, f: job.source(RateSource(None, limit=100, make=f)),
    "records": lambda job, f: job.source(IterableSource(f)),
}


@pytest.mark.parametrize("function", [stop, leave, cancel])
@pytest.mark.parametrize("call", CALLS)
def test_a_function_that_stops_exits_or_cancels_has_failed(
    call: str, function: Function, tmp_path: Path
) -> None:
    found: list[Any] = []
    job = Job("misbehaving")
    CALLS[call](job, function).sink(ForeachSink(found.append))
    reason = {stop: "StopIteration", leave: "SystemExit: 0", cancel: "CancelledError"}[function]
    with pytest.raises(UserFunctionError, match=reason):
        run(job, tmp_path / "store")
    assert found == []


@pytest.mark.parametrize("function", [stop, leave, cancel])
@pytest.mark.parametrize("sink", ["callback", "format"])
def test_a_function_of_a_sink_that_stops_exits_or_cancels_has_failed(
    sink: str, function: Function, tmp_path: Path
) -> None:
    job = Job("misbehaving")
    sinks = {
        "callback": ForeachSink(function),
        "format": FileSink(tmp_path / "out", format=function),
    }
    job.source(NUMBERS).sink(sinks[sink])
    with pytest.raises(TidelogError, match=r"StopIteration|SystemExit|CancelledError"):
        run(job, tmp_path / "store")


AWAITED: dict[str, Callable[[Stream, Stream, Any], Any]] = {
    "map": lambda numbers, _, f: numbers.map(f),
    "filter": lambda numbers, _, f: numbers.filter(f),
    "rule": lambda numbers, others, f: numbers.with_broadcast(others, on_rule=f, on_record=print),
    "record": lambda numbers, others, f: numbers.with_broadcast(others, on_rule=print, on_record=f),
    "enrich": lambda numbers, others, f: numbers.key_by(str).enrich(others.key_by(str), f),
    "records": lambda numbers, _, f: numbers.key_by(str).window(Count(2)).records(f),
}


@pytest.mark.parametrize("operator", AWAITED)
def test_a_function_that_nobody_would_await_is_refused(operator: str) -> None:
    async def awaited(*arguments: Any) -> Any:
        return arguments

    job = Job("awaiting")
    numbers, others = job.source(NUMBERS), job.source(NUMBERS, name="others")
    with pytest.raises(ConfigError, match="not `async`"):
        AWAITED[operator](numbers, others, awaited)


@pytest.mark.parametrize("operator", [Stream.map, Stream.filter, Stream.key_by])
@pytest.mark.parametrize("name", [None, "user"])
def test_the_name_of_a_field_in_place_of_a_function_is_refused(operator: Any, name: Any) -> None:
    with pytest.raises(ConfigError, match=f"expected a function; found {name!r}"):
        operator(Job("names").source(NUMBERS), name)


def test_what_is_no_stream_is_refused_where_streams_meet() -> None:
    job = Job("meeting")
    numbers, others = job.source(NUMBERS), job.source(NUMBERS, name="others")
    with pytest.raises(ConfigError, match="expected a Stream, not in a list"):
        numbers.union([others])  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="expected a Stream"):
        rules: Any = NUMBERS  # the source itself, which no job has
        numbers.with_broadcast(rules, on_rule=print, on_record=lambda *_: [])
    with pytest.raises(ConfigError, match="expected a Stream"):
        table: Any = None
        numbers.key_by(str).join(table, (0, 5))


@pytest.mark.parametrize("windows", [Tumbling(10), Sliding(10, 5), Session(3), Count(5)], ids=str)
def test_a_window_function_that_fails_is_named_by_its_operator(
    tmp_path: Path, windows: Any
) -> None:
    job = Job("windows")
    keyed(job).window(windows, name="visits").records(lambda *window: 1 / 0).sink(
        ForeachSink(print)
    )
    with pytest.raises(
        UserFunctionError, match=r"^visits raised ZeroDivisionError: .*, at tests.*:\d+ \("
    ):
        run(job, tmp_path / "store")
