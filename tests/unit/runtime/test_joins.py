"""What users of joins meet: bounds, late records, arguments that cannot be, changed programs."""

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from tests.support.pipelines import Outside, Portions, acted_on, run
from tests.unit.runtime.test_changed_types import stopped
from tidelog import IterableSource, Job, Tumbling
from tidelog.errors import ConfigError, StateSchemaError
from tidelog.runtime.graph import KeyedStream
from tidelog.runtime.operators.window import WindowSpan
from tidelog.runtime.runner import JobRunner
from tidelog.runtime.status.observe import status_of
from tidelog.state.timed_rows import TimedRecord, TimedRows
from tidelog.storage.memory import MemoryStore

LEFTS = [("a", 100, "l1"), ("a", 200, "l2"), ("b", 100, "l3")]
RIGHTS = [("a", 70, "r1"), ("a", 110, "r2"), ("b", 500, "r3")]


def stream(job: Job, name: str, records: list[Any]) -> KeyedStream:
    """Records (key, time, name)."""
    timed = job.source(IterableSource(records), name=name).event_time(
        lambda r: r[1], max_delay_ms=999
    )
    return timed.key_by(lambda r: r[0])


def joined(**arguments: Any) -> Counter[Any]:
    """The names of what a join of `LEFTS` and `RIGHTS` emits."""
    job, sink = Job("join"), Outside()
    left, right = stream(job, "left", LEFTS), stream(job, "right", RIGHTS)
    left.join(right, **arguments).sink(sink)
    run(job, MemoryStore())
    return Counter(tuple(each and each[2] for each in pair) for pair in sink.records)


@pytest.mark.parametrize(
    "within", [(-30, 10), ("-30ms", "10ms"), (timedelta(milliseconds=-30), timedelta(0, 0.01))]
)
def test_bounds_are_milliseconds_text_or_timedeltas(within: Any) -> None:
    assert joined(within=within) == Counter([("l1", "r1"), ("l1", "r2")])


@pytest.mark.parametrize("operator", ["join", "enrich"])
def test_nothing_that_comes_out_is_late_for_a_window_that_follows(operator: str) -> None:
    records = [("ab"[n % 2], 10 * n, n) for n in range(3000)]
    job, sink = Job("windows"), Outside()
    left, right = (
        job.source(IterableSource(records[at:]), name=name)
        .event_time(lambda r: r[1])
        .key_by(lambda r: r[0])
        for name, at in (("left", 0), ("right", 1500))
    )
    if operator == "join":
        made = left.join(right, (0, 0), how="outer")
    else:
        made = left.enrich(right, lambda record, row: (record, row))
    windows = made.key_by(lambda pair: "all").window(Tumbling(700)).count()
    windows.map(lambda fired: fired[2]).sink(sink)
    run(job, MemoryStore())
    assert sum(sink.records) == 3000 and len(sink.records) > 10


def test_a_stream_is_joined_with_itself() -> None:
    job, sink = Job("join"), Outside()
    left = stream(job, "left", LEFTS)
    left.join(left, (1, "1m")).map(lambda pair: (pair[0][2], pair[1][2])).sink(sink)
    run(job, MemoryStore())
    assert sink.records == [("l1", "l2")]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "within=.* or window=; found none"),
        ({"within": (0, 1), "window": WindowSpan(1, 1)}, "found both"),
        ({"within": (1, 0)}, "lower <= upper"),
        ({"within": 5}, "two bounds"),
        ({"within": (0, 2**62), "how": "left"}, r"less than 2\*\*61"),
        ({"within": (0, "soon")}, "such as 30s or 1m; found 'soon'"),
        ({"within": (0, 1.5)}, "found 1.5"),
        ({"window": 60_000}, "a tumbling window, or a sliding one"),
        ({"within": (0, 1), "how": "right"}, "inner or left or outer; found right"),
    ],
)
def test_what_is_no_join_is_refused_where_it_is_written(
    arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        joined(**arguments)


def counted_rows(monkeypatch: pytest.MonkeyPatch) -> list[TimedRecord]:
    """Every stored record of a key that is read from now on."""
    read: list[TimedRecord] = []
    of_key = TimedRows.of_key

    def counted(*asked: Any) -> Iterator[TimedRecord]:
        for held in of_key(*asked):
            read.append(held)
            yield held

    monkeypatch.setattr(TimedRows, "of_key", counted)
    return read


def test_after_a_restart_the_many_rows_of_a_key_are_not_read_with_every_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, read = MemoryStore(), counted_rows(monkeypatch)

    def job(sink: Outside) -> Job:
        job = Job("self")
        source = Portions({"one": list(range(6000))}, portion=100)
        stream = job.source(source).event_time(int, max_delay_ms=6000).key_by(lambda _: "key")
        stream.enrich(stream, lambda record, row: record == row).sink(sink)
        return job

    acted_on(job(Outside()), store, at=20, crash=True)
    read.clear()
    sink = Outside()
    run(job(sink), store)
    assert sink.records == [True] * 6000
    assert len(read) < 8 * 6000


def test_after_a_restart_a_join_reads_of_a_hot_key_what_is_near_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, read, sink = MemoryStore(), counted_rows(monkeypatch), Outside()

    def job() -> Job:
        job = Job("hot")
        left, right = (
            job.source(Portions({"one": times}, portion=portion), name=name)
            .event_time(int, max_delay_ms=10**6)
            .key_by(lambda _: "key")
            for name, times, portion in (
                ("left", list(range(6_000)), 1_000),
                ("right", list(range(20_000, 20_200)), 10),
            )
        )
        left.join(right, (20_000, 40_000), how="left").sink(sink)
        return job

    acted_on(job(), store, at=9, crash=True)
    read.clear()
    run(job(), store)
    pairs = [(left, 20_000 + right) for right in range(200) for left in range(right + 1)]
    alone = [(left, None) for left in range(200, 6_000)]
    assert Counter(sink.records) == Counter(pairs + alone)
    assert 0 < len(read) < 6_000 + len(pairs), "all of them once, and each pair"


def test_enrichment_by_processing_time_needs_none() -> None:
    job, sink = Job("enrich"), Outside()
    records, table = (
        job.source(IterableSource([1, 2]), name=name).key_by(lambda n: n) for name in ("r", "t")
    )
    records.enrich(table, lambda n, row: (n, row), time="processing").sink(sink)
    run(job, MemoryStore())
    assert sorted(n for n, _ in sink.records) == [1, 2]
    assert all(row in (n, None) for n, row in sink.records)
    with pytest.raises(ConfigError, match="event or processing; found now"):
        records.enrich(table, max, time="now")  # type: ignore[arg-type]  # the point


@pytest.mark.parametrize("operator", ["join", "enrich"])
def test_a_record_of_none_is_refused_where_it_has_to_be_kept(operator: str) -> None:
    job = Job("none")
    timed = job.source(Portions({"s": list(range(60))})).event_time(lambda _: 5)
    keyed = timed.map(lambda _: None).key_by(lambda _: "all")
    made = keyed.join(keyed, (0, 0)) if operator == "join" else keyed.enrich(keyed, lambda a, b: 1)
    made.sink(Outside())
    with pytest.raises(StateSchemaError, match="anything but None"):
        run(job, MemoryStore())


def job_of(
    store_of: Portions,
    sink: Outside,
    *,
    within: Any = (0, 0),
    change: Any = None,
    key: Any = "all",
    key_type: Any = None,
    **types: Any,
) -> Job:
    """A join that holds everything until the data ends."""
    job = Job("join")
    timed = job.source(store_of).map(change or (lambda r: r)).event_time(lambda _: 5)
    rekey = {"key_type": key_type, "migrate": lambda key: (key,)} if key_type else {}
    keyed = timed.key_by(lambda r: key, **rekey)
    keyed.join(keyed, within, **types).map(lambda pair: 1).sink(sink)
    return job


def test_a_changed_program_is_refused_or_migrated() -> None:
    source, sink, store = Portions({"s": list(range(60))}), Outside(), MemoryStore()
    make = partial(job_of, source, sink)
    stopped(make(), store)
    with pytest.raises(StateSchemaError, match="within 0 to 0 ms"):
        run(make(within=(0, 7)), store)
    with pytest.raises(StateSchemaError, match="inner, within"):
        run(make(how="outer"), store)
    with pytest.raises(StateSchemaError, match=r"record_type=int \| str"):
        run(make(change=str), store)
    with pytest.raises(StateSchemaError, match="keys of operator 'join'"):
        run(make(key=("all",)), store)
    changed = {"key": ("all",), "key_type": tuple[str], "record_type": str, "migrate": str}
    run(make(change=str, **changed), store, seed=3)
    assert len(sink.records) == 60 * 60


def test_a_sliding_join_goes_on_with_what_was_kept() -> None:
    source, sink, store = Portions({"s": list(range(60))}), Outside(), MemoryStore()
    span = WindowSpan(100, 10)

    def make() -> Job:
        job = Job("sliding")
        keyed = (
            job.source(source).event_time(lambda n: 7 * n, max_delay_ms=999).key_by(lambda _: "all")
        )
        keyed.join(keyed, window=span).map(lambda pair: pair).sink(sink)
        return job

    stopped(make(), store)
    assert len(sink.records) > 0
    run(make(), store, seed=3)
    windows = {n: {*span.starts(7 * n, -1000)} for n in range(60)}
    pairs = {(a, b): len(windows[a] & windows[b]) for a in windows for b in windows}
    assert Counter(sink.records) == Counter({pair: n for pair, n in pairs.items() if n})


@pytest.mark.parametrize(
    ("left", "right", "types"),
    [
        (int, str, "int on the left, str on the right"),
        (int, float, "int on the left, float on the right"),
        (lambda n: (n, "a"), lambda n: (str(n), "a"), "tuple[int, str] on the left, tuple[str,"),
        (int, lambda n: n if n % 2 else str(n), None),
        (lambda n: (n, None), lambda n: (n, "a"), None),
        (int, int, None),
    ],
)
@pytest.mark.parametrize("operator", ["join", "enrich"])
def test_keys_that_can_never_be_equal_are_told_once(
    left: Any, right: Any, types: str | None, operator: str, logged: Any
) -> None:
    job, sink = Job("apart"), Outside()
    streams = [
        job.source(Portions({"a": list(range(20)), "b": list(range(20))}), name=name)
        .event_time(lambda n: n)
        .key_by(key)
        for name, key in (("lefts", left), ("rights", right))
    ]
    if operator == "join":
        streams[0].join(streams[1], (0, 0), name="met").sink(sink)
    else:
        streams[0].enrich(streams[1], lambda *pair: pair, name="met").sink(sink)

    async def seen(runner: JobRunner) -> str | None:
        return next(each.keys_apart for each in status_of(runner).operators if each.id == "met")

    _, apart = acted_on(job, MemoryStore(), seen, at=3.0)
    told = logged("keys_apart")
    if types is None:
        assert (told, apart) == ([], None)
    else:
        assert len(told) == 1 and told[0]["where"] == "key_by before operator 'met'"
        assert told[0]["types"] == apart and types in (apart or "")
