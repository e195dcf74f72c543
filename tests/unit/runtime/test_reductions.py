"""What reductions and windows refuse, and how their state lives on in a changed job."""

import re
import sys
from collections.abc import Callable
from operator import itemgetter
from typing import Any

import pytest

from tests.support.clock import VirtualClock
from tests.support.pipelines import Outside, Portions, config, run
from tests.unit.runtime.test_changed_types import stopped
from tests.unit.state.conftest import Bench
from tidelog import Count, IterableSource, Job, KeyedStream, OutputTag, Session, Sliding, Tumbling
from tidelog.errors import ConfigError, StateSchemaError, UserFunctionError
from tidelog.runtime.channels.messages import Batch
from tidelog.runtime.channels.partition import ByKey
from tidelog.runtime.graph import Stream
from tidelog.runtime.operators.deduplicate import Deduplicate
from tidelog.runtime.operators.operator import OperatorContext
from tidelog.storage.memory import MemoryStore

value_of = itemgetter(2)
OTHER = Job("other").source(IterableSource([]))
Build = Callable[[KeyedStream], Stream]


def job(build: Build, sink: Outside, source: Any, value: Callable[[Any], Any] = int) -> Job:
    made = Job("made")
    valued = made.source(source).map(lambda r: (*r[:2], value(r[2])))
    timed = valued.event_time(itemgetter(1), max_delay_ms=10_000)
    build(timed.key_by(itemgetter(0))).sink(sink)
    return made


def emitted(build: Build, records: list[Any]) -> list[Any]:
    """What comes out of an operator; records are (key, time, ...)."""
    made, sink = Job("made"), Outside()
    timed = made.source(IterableSource(records)).event_time(itemgetter(1))
    build(timed.key_by(itemgetter(0))).sink(sink)
    run(made, MemoryStore())
    return sink.records


def portions() -> Portions:
    """Times go back and forth by the end; a hundred records."""
    records = [(f"k{n % 3}", n * 40, n) for n in range(100)]
    return Portions({"only": records}, portion=5, pause=0.6)


def changed(before: Build, after: Build, **values: Callable[[Any], Any]) -> list[Any]:
    """What comes out of a job that is stopped and goes on with another operator."""
    store, sink = MemoryStore(), Outside()
    first, then = values.get("first", int), values.get("then", int)
    stopped(job(before, sink, portions(), first), store, parallelism=1)
    run(job(after, sink, portions(), then), store, config(parallelism=3), seed=2)
    return sink.records


def sums(windows: Any, **options: Any) -> Build:
    return lambda keyed: keyed.window(windows, name="sums", **options).sum(value_of)


def old_sums(keyed: KeyedStream) -> Stream:
    return keyed.window(Tumbling(1_000), name="sums").aggregate(value_of, lambda a, b: a + b)


TOTALS = sorted(
    (f"k{k}", start, sum(n for n in range(100) if n % 3 == k and n * 40 // 1000 * 1000 == start))
    for k in range(3)
    for start in range(0, 4_000, 1_000)
)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (old_sums, sums(Tumbling("1s"))),
        (sums(Tumbling(1_000)), old_sums),
        (sums(Tumbling(1_000)), sums(Tumbling(1_000), allowed_lateness="5 s")),
        (sums(Sliding(1_000, 1_000), allowed_lateness=5_000), sums(Tumbling(1_000))),
    ],
    ids=["new call", "old call", "late", "late no more"],
)
def test_windows_of_one_span_go_on_with_what_is_stored(before: Build, after: Build) -> None:
    assert sorted(changed(before, after)) == TOTALS


@pytest.mark.parametrize("lateness", [0, 1])
def test_a_session_that_was_kept_for_a_longer_lateness_takes_no_late_record(lateness: int) -> None:
    times = [("k", 0), ("k", 5), ("z", 1_000), *[("z", 1_001)] * 20, ("k", 6), ("z", 5_000)]
    source = Portions({"only": times}, portion=1)
    store, sink, late, tag = MemoryStore(), Outside(), Outside(), OutputTag("late")

    def counted(allowed: int) -> Job:
        made = Job("made")
        keyed = made.source(source).event_time(itemgetter(1)).key_by(itemgetter(0))
        counts = keyed.window(Session(100), allowed_lateness=allowed, late=tag).count()
        counts.sink(sink)
        counts.side_output(tag).sink(late, name="late")
        return made

    stopped(counted(10_000), store, at=8.2, parallelism=1)
    assert (sink.records, late.records) == ([("k", 0, 105, 2)], [])
    run(counted(lateness), store, config(parallelism=1))
    assert (len(sink.records), late.records) == (3, [("k", 6)])


@pytest.mark.parametrize(
    ("after", "found"),
    [
        (sums(Session(2_000)), r"gap 1000 ms; values\) became"),
        (
            lambda k: k.window(Session(1_000), name="sums").records(lambda *window: window),
            "found reduction records",
        ),
    ],
    ids=["gap", "records"],
)
def test_sessions_of_another_kind_are_refused(after: Build, found: str) -> None:
    with pytest.raises(StateSchemaError, match=found):
        changed(sums(Session(1_000)), after)


@pytest.mark.parametrize("windows", [Session(1_000), Tumbling(60_000), Count(30)], ids=str)
def test_values_of_another_type_are_refused_or_migrated(windows: Any) -> None:
    def typed(**options: Any) -> Build:
        return lambda k: k.window(windows, name="sums").sum(value_of, **options)

    with pytest.raises((StateSchemaError, UserFunctionError), match=re.escape("int | str")):
        changed(typed(), typed(), then=str)
    values = [value for *_, value in changed(typed(), typed(value_type=str, migrate=str), then=str)]
    assert values and set(map(type, values)) == {str}
    # Of what has come before the change the sum is there, and then one number after the other.
    digits = sum(map(len, map(str, range(100))))
    assert isinstance(windows, Count) or digits / 2 < sum(map(len, values)) < digits


@pytest.mark.parametrize("windows", [Tumbling(10), Sliding(10, 5), Tumbling(20)], ids=str)
@pytest.mark.parametrize("lateness", [0, 5])
def test_no_window_combines_none(windows: Any, lateness: int) -> None:
    def greatest(keyed: KeyedStream) -> Stream:
        windowed = keyed.window(windows, allowed_lateness=lateness)
        return windowed.aggregate(value_of, lambda a, b: a if b is None else max(a, b))

    records = [("a", 1, None), ("a", 2, 3), ("a", 3, None), ("a", 4, 2)]
    assert {value for *_, value in emitted(greatest, records)} == {3}


@pytest.mark.parametrize("options", [{}, {"emit": "updates"}], ids=str)
def test_a_window_whose_slices_combine_to_none_does_not_come_out(options: Any) -> None:
    """Records of one slice leave its value, those of two leave none."""

    def cancelled(keyed: KeyedStream) -> Stream:
        windowed = keyed.window(Sliding(10, 5), **options)
        return windowed.aggregate(value_of, lambda a, b: a if a == b else None)

    records = [("a", 1, 3), ("a", 6, 4), ("b", 1, 3), ("b", 6, 3)]
    windows = {("a", -5, 3), ("a", 5, 4), ("b", -5, 3), ("b", 0, 3), ("b", 5, 3)}
    assert {*emitted(cancelled, records)} == windows


@pytest.mark.parametrize(
    ("windows", "options"),
    [
        (Tumbling(10), {}),
        (Tumbling(10), {"allowed_lateness": 5}),
        (Sliding(10, 5), {}),
        (Session(10), {}),
        (Count(1), {}),
    ],
    ids=str,
)
def test_a_window_whose_value_is_none_does_not_come_out(
    windows: Any, options: dict[str, Any]
) -> None:
    records = [("a", 1, None), ("b", 2, 3)]
    found = emitted(lambda keyed: keyed.window(windows, **options).max(value_of), records)
    assert {(key, value) for key, *_, value in found} == {("b", 3)}


@pytest.mark.parametrize(
    "times",
    [
        [1.0, 3],
        [3, 1.0],
        [None],
        ["4"],
        [1, None],
        [2**63 - 1],
        [2**63],
        [1, 2**70, 2],
        [-(2**63), 2],
    ],
    ids=str,
)
def test_a_time_that_is_no_int_or_of_no_date_is_an_error_of_its_operator(times: list[Any]) -> None:
    wrong = next(time for time in times if not isinstance(time, int) or abs(time) > 10)
    with pytest.raises(UserFunctionError, match=re.escape(f"{wrong!r} of type")):
        emitted(lambda keyed: keyed.window(Session(10)).count(), [(0, time) for time in times])


@pytest.mark.parametrize("time", [2**62, -(2**62)])
@pytest.mark.parametrize("windows", [Tumbling(10), Sliding(10, 5), Session(2**61 - 1)], ids=str)
def test_windows_of_the_latest_and_the_earliest_time_fire(windows: Any, time: int) -> None:
    def listed(keyed: KeyedStream) -> Stream:
        return keyed.window(windows, allowed_lateness=2**61 - 1).records(lambda *w: w[-1])

    assert [("k", time)] in emitted(listed, [("k", time), ("k", 1)])


@pytest.mark.parametrize(
    ("function", "made_of"),
    [(lambda records: (each + 1 for each in records), [2, 3]), (lambda records: None, None)],
    ids=["generator", "nothing"],
)
def test_a_function_of_whole_buffers_makes_a_buffer(
    function: Callable[[Any], Any], made_of: list[int] | None
) -> None:
    sink, made = Outside(), Job("whole")
    made.source(IterableSource([1, 2])).map_batches(function, name="whole").map(int).sink(sink)
    if made_of is None:
        with pytest.raises(UserFunctionError, match="whole"):
            run(made, MemoryStore())
    else:
        run(made, MemoryStore())
    assert sink.records == (made_of or [])


def test_a_side_output_is_that_of_the_windows_also_where_what_they_emit_is_finished() -> None:
    records = [("a", n * 10, n) for n in range(2048)] + [("a", 1, 7)]
    sink, late, made, tag = Outside(), Outside(), Job("late"), OutputTag("late")
    keyed = made.source(IterableSource(records)).event_time(itemgetter(1)).key_by(itemgetter(0))
    means = keyed.window(Tumbling(100), late=tag).mean(value_of)
    means.sink(sink)
    means.side_output(tag).sink(late, name="late")
    run(made, MemoryStore())
    assert late.records == [("a", 1, 7)] and ("a", 0, 4.5) in sink.records


@pytest.mark.parametrize(
    ("build", "what"),
    [
        (lambda k: k.window(Count(3), allowed_lateness=5).count(), "has no event time"),
        (lambda k: k.window(Count(3)).count(emit_updates=True), "has no event time"),
        (lambda k: k.window(Tumbling(5), emit="often"), "final or updates"),
        (lambda k: k.window(5), "Tumbling"),
        (lambda k: k.top(0, by=value_of), "1 or more"),
        (lambda k: k.top(2.5, by=value_of), "an int"),
        (lambda k: k.window(Count(2.5)), "an int"),
        (lambda k: k.window(Count("3")), "an int"),
        (lambda k: k.window(Session(sys.maxsize)), "less than"),
        (lambda k: k.window(Session(5), allowed_lateness=sys.maxsize), "less than"),
        (lambda k: k.deduplicate(ttl=1.5), "1.5"),
        (lambda k: k.deduplicate(ttl=2**64), "less than"),
        (lambda k: k.deduplicate(ttl=0), "more than 0"),
        (lambda k: k.sink(print), "a Sink, such as"),
        (lambda k: k.sink(Outside(), parallelism=1.5), "an int; found 1.5"),
        (lambda k: Job("listed").source([1, 2]), "a Source, such as"),
        (lambda k: k.window(5.0, value_of=int, combine=max), "Tumbling"),
        (lambda k: k.count(emit_update=True), "emit_update"),
        (lambda k: k.window(Tumbling(5)).count(late=OutputTag("late")), "late"),
        (lambda k: k.window(Tumbling(5), 1), r"aggregate\(...\) after it"),
        (lambda k: k.window("10m").count(), "Tumbling"),
        (lambda k: k.window(5, 0, value_of=int, combine=max), "0"),
        (lambda k: k.window(Tumbling(5), late="late"), "an OutputTag"),
        (lambda k: k.side_output("late"), "an OutputTag"),
        (
            lambda k: k.transform_with_state(object, time_mode="EventTime"),
            "none, processing, event",
        ),
        (lambda k: k.join(k.map(str), (0, 1)), "key_by"),
        (lambda k: k.enrich(OTHER.key_by(str), max), "of job 'other'"),
        (lambda k: k.union(OTHER), "of job 'other'"),
        (lambda k: k.with_broadcast(OTHER, on_rule=print, on_record=print), "of job 'other'"),
    ],
)
def test_what_no_operator_can_do_is_refused_where_the_job_is_built(
    build: Callable[[Any], Any], what: str
) -> None:
    with pytest.raises(ConfigError, match=what):
        build(Job("wrong").source(IterableSource([])).key_by(str))


def test_an_id_is_forgotten_when_its_time_to_live_is_over() -> None:
    bench = Bench()
    operator = Deduplicate(itemgetter(1), 500)
    operator.open(OperatorContext(VirtualClock(), bench.backend))

    def passed(*ids: Any) -> list[Any]:
        records = [("k", each) for each in ids]
        ((_, batch),) = ByKey(itemgetter(0), 1, 4).route(Batch(records))
        return [each for made in operator.process(batch) for _, each in made.records]

    assert passed(1, 2, 1, None, "1", (1, 2), None) == [1, 2, None, "1", (1, 2)]
    bench.now += 499
    assert passed(1, 3) == [3]  # not kept any longer by that
    bench.backend.flush()
    bench.now += 1
    assert passed(1, 3) == [1]
    bench.backend.flush()
    bench.now += 10_000
    bench.sweep()
    bench.backend.flush()
    assert bench.stored == []
