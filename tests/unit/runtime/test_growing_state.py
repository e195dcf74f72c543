"""What a record costs an operator does not grow with what its key has already; what it has to cost
is said where the job is built.
"""

from collections import Counter
from collections.abc import Callable
from operator import itemgetter
from typing import Any

import pytest

from tests.support.pipelines import Outside, config, run
from tests.support.steps import calls_of
from tests.unit.runtime.test_reductions import Build
from tidelog import IterableSource, Job, KeyedStream, Session, Sliding, Stream, Tumbling
from tidelog.state.timed_records import NewRecord, TimedRecords
from tidelog.storage.memory import MemoryStore

EVENLY = 10_007
value_of = itemgetter(2)
TIMED: Any = itemgetter(1)


def shuffled(count: int, spread: int = 1) -> list[Any]:
    """Records of one key with all times up to a count, in no order."""
    return [("k", n * EVENLY % count * spread, n * EVENLY % count) for n in range(count)]


def one_far_ahead(count: int) -> list[Any]:
    return [("k", 10**9, 0), *(("k", n * 10, n) for n in range(count))]


def keyed_stream(job: Job, records: list[Any], name: str = "source") -> KeyedStream:
    timed = job.source(IterableSource(records), name=name).event_time(TIMED, max_delay_ms=10**10)
    return timed.key_by(itemgetter(0))


def emitted(build: Build, records: list[Any]) -> tuple[list[Any], int]:
    job, sink = Job("grows"), Outside()
    build(keyed_stream(job, records)).sink(sink)
    cost = calls_of(lambda: run(job, MemoryStore(), config(parallelism=1)))
    return sink.records, cost


def tops(keyed: KeyedStream) -> Stream:
    # A function of Python, whose calls count.
    return keyed.top(100_000, by=lambda record: record[2]).map(
        lambda out: [record[2] for record in out[1]]
    )


def test_the_greatest_of_many_are_found_by_halves() -> None:
    costs = {}
    for count in (500, 2_000):
        (greatest,), costs[count] = emitted(tops, shuffled(count))
        assert greatest == [*range(count - 1, -1, -1)]
    assert costs[2_000] < 4 * 1.4 * costs[500]


def test_of_a_hot_key_only_records_that_are_near_in_time_are_looked_at() -> None:
    costs = {}
    for count in (1_500, 6_000):  # of which none is flushed meanwhile
        job, sink = Job("grows"), Outside()
        left = keyed_stream(job, shuffled(count), "left")
        # A right record is later than all left ones that it could be paired with, but for one.
        late = [("k", 10**6 + when, when) for _, when, _ in shuffled(count)]
        right = keyed_stream(job, late, "right")
        left.join(right, (10**6 + count - 1, 10**6 + 4 * count)).sink(sink)
        costs[count] = calls_of(lambda job=job: run(job, MemoryStore(), config(parallelism=1)))
        assert [(one[1], other[1]) for one, other in sink.records] == [(0, 10**6 + count - 1)]
    assert costs[6_000] < 4 * 1.2 * costs[1_500]


def test_one_record_far_ahead_does_not_make_every_new_window_look_for_its_row() -> None:
    def counts(keyed: KeyedStream) -> Stream:
        return keyed.window(Tumbling(10)).count()

    near, expected = emitted(counts, one_far_ahead(1)[1:] + one_far_ahead(3_000)[1:])
    far, cost = emitted(counts, one_far_ahead(3_000))
    assert Counter(far) == Counter([("k", 10**9, 1), *(("k", n * 10, 1) for n in range(3_000))])
    assert len(near) == 3_000
    assert cost < 1.2 * expected


MANY: dict[str, Callable[[KeyedStream], Any]] = {
    "updates": lambda keyed: keyed.window(Sliding("1h", "1s"), emit="updates").count(),
    "emit_updates": lambda keyed: keyed.window(Sliding("1h", "1s")).sum(
        value_of, emit_updates=True
    ),
    "records": lambda keyed: keyed.window(Sliding("1h", "1s"), emit="updates").records(
        lambda *window: window
    ),
    "join": lambda keyed: keyed.join(keyed, window=Sliding("1h", "1s")),
}
FEW: dict[str, Callable[[KeyedStream], Any]] = {
    "at their end": lambda keyed: keyed.window(Sliding("1h", "1s")).count(),
    "few": lambda keyed: keyed.window(Sliding("1h", "1m"), emit="updates").count(),
    "sessions": lambda keyed: keyed.window(Session("1h"), emit="updates").count(),
    "tumbling join": lambda keyed: keyed.join(keyed, window=Tumbling("1h")),
}


@pytest.mark.parametrize("build", MANY.values(), ids=MANY)
def test_windows_that_cost_each_for_itself_are_told_where_the_job_is_built(
    build: Any, logged: Any
) -> None:
    build(keyed_stream(Job("told"), []))
    (told,) = logged("many_windows")
    assert (told["size"], told["slide"], told["windows"]) == (3_600_000, 1_000, 3_600)


@pytest.mark.parametrize("build", FEW.values(), ids=FEW)
def test_windows_that_share_their_slices_or_are_few_are_not(build: Any, logged: Any) -> None:
    build(keyed_stream(Job("told"), []))
    assert logged("many_windows") == []


@pytest.mark.parametrize("how", ["inner", "outer"])
def test_a_window_join_keeps_few_records_at_once_where_each_is_in_many_windows(
    how: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flush can make room between them. Only where a record may be alone in some of its windows
    it is kept once for each.
    """
    added: list[int] = []
    add = TimedRecords.add

    def counted(self: TimedRecords, new: list[NewRecord]) -> range:
        added.append(len(new))
        return add(self, new)

    monkeypatch.setattr(TimedRecords, "add", counted)
    job, sink = Job("many"), Outside()
    left, right = (keyed_stream(job, shuffled(30, 1_000), name) for name in ("left", "right"))
    joined = left.join(right, window=Sliding(100_000, 500), how=how)
    joined.map(lambda pair: None not in pair).sink(sink)
    run(job, MemoryStore(), config(parallelism=1))
    times = [1_000 * n for n in range(30)]
    assert sum(sink.records) == sum((100_000 - abs(a - b)) // 500 for a in times for b in times)
    assert 0 < max(added) <= 256
    assert sum(added) == 2 * 30 * (200 if how == "outer" else 1)


def test_windows_that_are_emitted_when_they_change_combine_what_they_share_once() -> None:
    costs, count = {}, 400
    for name, windows in {"few": Sliding("10m", "1m"), "many": Sliding("10m", "1s")}.items():
        combined = [0]

        def sums(keyed: KeyedStream, windows: Any = windows, combined: Any = combined) -> Stream:
            def add(left: int, right: int) -> int:
                combined[0] += 1
                return left + right

            return keyed.window(windows, emit="updates").aggregate(value_of, add)

        records, _ = emitted(sums, shuffled(count, 1_000))
        slide = 60_000 if name == "few" else 1_000
        newest = {start: value for _, start, value in records}
        assert newest == {
            start: sum(n for n in range(count) if start <= n * 1_000 < start + 600_000)
            for start in range(-600_000 + slide, count * 1_000, slide)
        }
        costs[name] = combined[0] / len(records)
    assert costs["many"] < costs["few"]


def test_the_watermark_does_not_look_at_every_open_window() -> None:
    costs = {}
    for count in (1_000, 4_000):
        job, sink = Job("open"), Outside()
        timed = job.source(IterableSource([("k", 10 * n) for n in range(2 * count)])).event_time(
            TIMED, max_delay_ms=10 * count
        )
        timed.key_by(itemgetter(0)).window(Tumbling(10)).count().sink(sink)
        few = config(parallelism=1, buffer_records=16)
        costs[count] = calls_of(lambda job=job, few=few: run(job, MemoryStore(), few))
        assert sink.records == [("k", 10 * n, 1) for n in range(2 * count)]
    assert costs[4_000] < 4 * 1.2 * costs[1_000]
