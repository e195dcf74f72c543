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
from tidelog import Job, KeyedStream, Replayable, Session, Sliding, Stream, Tumbling
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
    timed = job.source(Replayable(records), name=name).event_time(TIMED, max_delay_ms=10**10)
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


def test_a_window_join_keeps_few_records_at_once_where_each_is_in_many_windows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A flush can make room between them."""
    most, add = [0], TimedRecords.add

    def counted(self: TimedRecords, new: list[NewRecord]) -> range:
        most[0] = max(most[0], len(new))
        return add(self, new)

    monkeypatch.setattr(TimedRecords, "add", counted)
    job, sink = Job("many"), Outside()
    left, right = (keyed_stream(job, shuffled(30, 1_000), name) for name in ("left", "right"))
    left.join(right, window=Sliding(100_000, 500)).map(lambda _: 1).sink(sink)
    run(job, MemoryStore(), config(parallelism=1))
    times = [1_000 * n for n in range(30)]
    assert len(sink.records) == sum((100_000 - abs(a - b)) // 500 for a in times for b in times)
    assert 0 < most[0] <= 256
