"""No operator holds the event loop for long, whatever a user's function takes or makes; barriers
pass between the steps; buffers have a limit.

What leaves memory for table and log, and what a window gathers, does so in steps.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pytest

from tests.support.clock import VirtualClock
from tests.support.depth import one_by_one
from tests.support.pipelines import Outside, config
from tests.support.pressure import (
    Alarms,
    Eager,
    checkpoints,
    outside_as_of,
    pressed,
    resumed,
    run_pressed,
    slowly,
    under_pressure,
)
from tests.support.stopwatch import LIMIT_S, Stopwatch, run_watched
from tidelog import (
    CheckpointConfig,
    FlushConfig,
    ForeachSink,
    Job,
    SinkContext,
    Sliding,
    StatefulProcessor,
    Tumbling,
)
from tidelog.connectors.program.sinks import CallbackWriter
from tidelog.runtime.channels.buffers import bytes_of
from tidelog.runtime.channels.channel import Channel
from tidelog.runtime.channels.messages import Batch, KeyedBatch
from tidelog.storage.memory import MemoryStore
from tidelog.table.memory import MemoryTable

COUNT = 400


class SlowAlarms(Alarms):
    """Rows take their time as well."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        self._clock.spend(0.001)
        return super().handleInputRows(key, rows, timerValues)


def slow(clock: Stopwatch, value: Any, seconds: float = 0.001) -> Any:
    clock.spend(seconds)
    return value


def many(clock: Stopwatch, count: int) -> Iterator[int]:
    for number in range(count):
        clock.spend(0.001)
        yield number


def by_timers(stream: Any, clock: Stopwatch) -> Any:
    timed = stream.event_time(lambda _: 1).key_by(lambda n: n)
    alarms = lambda: SlowAlarms(clock, 0.001, lambda: 1_000)  # noqa: E731
    return timed.transform_with_state(alarms, time_mode="event")


class Numbers(StatefulProcessor):
    """Takes all rows that it gets at once; numbers them in their order."""

    def __init__(self, clock: Stopwatch) -> None:
        self._clock = clock

    def init(self, handle: Any) -> None:
        self._last = handle.getValueState("last", "n int")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        return [self._number(row) for row in rows]

    def _number(self, row: int) -> int:
        self._clock.spend(0.001)
        number = (self._last.get() or (-1,))[0] + 1
        self._last.update((number,))
        assert row == number, "rows of a key stay in order"
        return number


def by_key(stream: Any, clock: Stopwatch) -> Any:
    return stream.key_by(lambda _: "all").transform_with_state(lambda: Numbers(clock))


def by_windows(stream: Any, clock: Stopwatch) -> Any:
    timed = stream.event_time(lambda _: 1).key_by(lambda n: n)
    return timed.window(Tumbling(10)).records(lambda key, _, __: slow(clock, key))


def by_slices(stream: Any, clock: Stopwatch) -> Any:
    """Windows of forty slices each, all of one key."""

    def least(left: int, right: int) -> int:
        clock.spend(0.001)
        return min(left, right)

    timed = stream.event_time(lambda n: n).key_by(lambda _: "all")
    windows = timed.window(Sliding(40, 1)).aggregate(lambda n: n, least)
    return windows.filter(lambda fired: fired[1] >= 0).map(lambda fired: fired[2])


BUILDS: dict[str, Callable[[Any, Stopwatch], Any]] = {
    "map": lambda stream, clock: stream.map(lambda n: slow(clock, n)),
    "key": lambda stream, clock: (
        stream.key_by(lambda n: slow(clock, n)).count().map(lambda pair: pair[0])
    ),
    "flat_map": lambda stream, clock: stream.filter(lambda n: n == 7).flat_map(
        lambda _: many(clock, COUNT)
    ),
    "rows of a key": by_key,
    "timers": by_timers,
    "windows": by_windows,
    "slices": by_slices,
    "finish": lambda stream, clock: (
        stream.key_by(lambda n: n).count().map(lambda pair: slow(clock, pair[0]))
    ),
}


@pytest.mark.parametrize("build", BUILDS.values(), ids=BUILDS)
def test_no_operator_holds_the_loop(build: Any) -> None:
    clock, sink = Stopwatch(), Outside()
    job = Job("long")
    build(job.source(Eager({"only": list(range(COUNT))}, COUNT)), clock).sink(sink)
    run_watched(job, clock)
    assert sorted(sink.records) == list(range(COUNT))
    assert 0 < clock.longest <= LIMIT_S


def test_timers_of_processing_time_do_not_hold_the_loop() -> None:
    clock, fired = Stopwatch(), []
    job = Job("long")
    source = Eager({"only": list(range(COUNT))}, COUNT)
    endless = Eager({"ticks": list(range(4_000))}, 1)
    keyed = job.source(source).key_by(lambda n: n)
    soon = lambda: SlowAlarms(clock, 0.001, lambda: clock.now_ms() + 1_000)  # noqa: E731
    alarms = keyed.transform_with_state(soon, time_mode="processing")
    waiting = job.source(endless, name="ticks").map(lambda _: slow(clock, None, 0.002))
    alarms.union(waiting.filter(lambda _: False)).sink(ForeachSink(fired.append))
    run_watched(job, clock)
    assert clock.longest <= LIMIT_S


class Requests(ForeachSink):
    """A sink that makes a request for each of its calls, however many records it gets."""

    def __init__(self, clock: Stopwatch) -> None:
        super().__init__(print)
        self._clock = clock
        self.calls: list[Sequence[int]] = []

    def open(self, context: SinkContext) -> CallbackWriter:
        writer = super().open(context)
        writer.write = self._write  # type: ignore[method-assign]
        return writer

    def _write(self, records: Sequence[int]) -> None:
        self._clock.spend(0.02)
        self.calls.append(records)


@one_by_one(record_us=[0, 5], shape=["at once", "behind an edge"])
def test_a_sink_whose_calls_take_long_gets_whole_buffers_while_checkpoints_are_under_way(
    record_us: int, shape: str
) -> None:
    clock, job, buffers, length = Stopwatch(), Job("requests"), 100, 1_000
    source, sink = Eager({"only": list(range(buffers * length))}, length), Requests(clock)
    stream = job.source(source).map(lambda n: slow(clock, n, record_us * 1e-6))
    (stream if shape == "at once" else stream.rebalance().map(int)).sink(sink)
    run_watched(job, clock, checkpoint=CheckpointConfig(interval=0.1))
    assert sorted(n for call in sink.calls for n in call) == list(range(buffers * length))
    assert len(sink.calls) <= 1.3 * buffers


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1), (2, 3)])
def test_barriers_pass_while_an_aggregate_emits_and_a_restart_emits_the_rest(
    before: int, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.runtime.operators.aggregate.OUTPUT_RECORDS", 3)
    source = Eager({"only": list(range(40)) * 2}, 10)

    def job(sink: Outside, clock: VirtualClock) -> Job:
        job = Job("finish")
        counted = job.source(source).key_by(lambda n: n).count()
        slowly(counted.rebalance(), clock, 0.3).sink(sink)
        return job

    def settings(parallelism: int) -> Any:
        schedule = CheckpointConfig(interval=0.1, timeout=1e6)
        return pressed(parallelism=parallelism, channel_buffers=1, checkpoint=schedule)

    sink, objects = under_pressure(job, settings(before))
    expected = [(n, 2) for n in range(40)]
    assert sorted(sink.records) == expected
    amid = 0
    for checkpoint in checkpoints(objects)[:-1]:
        amid += 0 < len(outside_as_of(sink, checkpoint).records) < len(expected)
        again = resumed(job, objects, sink, checkpoint, settings(after))
        assert sorted(again.records) == expected, checkpoint.slot
    assert amid >= 3


def test_buffers_have_a_limit_in_bytes_and_records(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Batch] = []
    send = Channel.send

    def spied(self: Channel, message: Any) -> None:
        if isinstance(message, Batch):
            sent.append(message)
        send(self, message)

    monkeypatch.setattr(Channel, "send", spied)
    sizes = [100, 3_000, 90_000, 20] * 30
    for build in (
        lambda stream: stream.rebalance().map(lambda r: r),
        lambda stream: stream.key_by(lambda r: r[0]).aggregate(len, lambda a, b: a + b),
    ):
        sent.clear()
        sink, objects, clock = Outside(), MemoryStore("memory://limit"), VirtualClock()
        job = Job("large")
        made = job.source(Eager({"only": [0]})).flat_map(
            lambda _: [(n, "x" * size) for n, size in enumerate(sizes)]
        )
        build(made).sink(sink)
        settings = config(parallelism=1, buffer_bytes=20_000, buffer_records=25)
        run_pressed(job, objects, settings, clock)
        assert len(sink.records) == len(sizes)
        made_buffers = [batch for batch in sent if isinstance(batch.records[0], tuple)]
        assert sum(map(len, made_buffers)) == len(sizes)
        for batch in made_buffers:
            assert len(batch.records) <= 25
            assert len(batch.records) == 1 or bytes_of(batch.records) <= 20_000
            if isinstance(batch, KeyedBatch):
                assert len(batch.keys) == len(batch.groups) == len(batch.records)


NOTHING = ForeachSink(lambda _: None)
LONG_CALLS: dict[str, Callable[[Any, Any], object]] = {
    "map": lambda stream, slowly: stream.map(slowly, name="long").sink(NOTHING),
    "filter": lambda stream, slowly: stream.filter(slowly, name="long").sink(NOTHING),
    "flat_map": lambda stream, slowly: stream.flat_map(lambda n: [slowly(n)], name="long").sink(
        NOTHING
    ),
    "map_batches": lambda stream, slowly: stream.map_batches(
        lambda many: [slowly(n) for n in many], name="long"
    ).sink(NOTHING),
    "key_by": lambda stream, slowly: stream.key_by(slowly).count(name="long").sink(NOTHING),
    "sink": lambda stream, slowly: stream.sink(ForeachSink(slowly), name="long"),
}


@pytest.mark.parametrize("build", LONG_CALLS.values(), ids=LONG_CALLS)
@pytest.mark.parametrize("seconds", [0.25, 0.1])
def test_one_call_of_a_users_function_that_holds_the_process_is_told_once(
    build: Any, seconds: float, caplog: pytest.LogCaptureFixture
) -> None:
    clock, job = Stopwatch(), Job("long-call")
    source = Eager({"one": list(range(200)), "two": list(range(200, 400))}, 100)
    build(job.source(source), lambda n: slow(clock, n, seconds if n in (5, 300) else 0.0))
    status = run_watched(job, clock, parallelism=2)
    told = [record.getMessage() for record in caplog.records if "without a pause" in record.msg]
    longest = max(operator.longest_call_s for operator in status.operators)
    assert longest == pytest.approx(seconds)
    if seconds < 0.2:
        assert told == []
    else:
        assert len(told) == 1 and "long" in told[0] and "250 ms" in told[0]


KEYS = 12_000
ROW_S = 0.000_004


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Stopwatch:
    """A table that takes its time for every row that is written or read in a scan."""
    clock, write, scan = Stopwatch(), MemoryTable.write, MemoryTable.scan

    def slow_write(self: MemoryTable, keys: Any, values: Any) -> None:
        clock.spend(ROW_S * len(keys))
        write(self, keys, values)

    def slow_scan(self: MemoryTable, lower: bytes, upper: bytes | None) -> Iterator[Any]:
        def rows() -> Iterator[Any]:
            for row in found:
                clock.spend(ROW_S)
                yield row

        found = list(scan(self, lower, upper))
        return rows()

    monkeypatch.setattr(MemoryTable, "write", slow_write)
    monkeypatch.setattr(MemoryTable, "scan", slow_scan)
    return clock


class Remember(StatefulProcessor):
    """A value, and a list that all records of a key are appended to."""

    def init(self, handle: Any) -> None:
        self._last = handle.getValueState("last", "n int")
        self._all = handle.getListState("all", "n int")

    def handleInputRows(self, key: Any, rows: Iterable[int], timerValues: Any) -> Iterator[Any]:
        for row in rows:
            self._last.update((row,))
            self._all.appendValue((row,))
        if row >= KEYS:
            yield len(list(self._all.get()))


def keys(stream: Any) -> Any:
    return stream.key_by(lambda n: n)


def windowed(stream: Any) -> Any:
    timed = keys(stream.event_time(lambda n: n))
    return timed.window(Tumbling(1_000_000)).records(lambda key, _, __: key)


def remembered(stream: Any) -> Any:
    source = stream.flat_map(lambda n: (n, n + KEYS))
    by_key = source.key_by(lambda n: n % KEYS)
    return by_key.transform_with_state(Remember).map(lambda count: count)


FLUSHED = {
    "summed": lambda stream: keys(stream).sum(int).map(lambda pair: pair[0]),
    "windowed": windowed,
    "remembered": remembered,
}


@pytest.mark.parametrize("build", FLUSHED.values(), ids=FLUSHED)
def test_a_flush_of_many_rows_lets_others_go_on(build: Any, clock: Stopwatch) -> None:
    emitted: list[Any] = []
    job = Job("flush")
    build(job.source(Eager({"only": list(range(KEYS))}, 4096))).sink(ForeachSink(emitted.append))
    run_watched(job, clock, flush=FlushConfig(rows=1 << 20, bytes=1 << 30))
    assert len(emitted) == KEYS
    assert 0 < clock.longest <= LIMIT_S


def test_rows_that_make_room_for_others_leave_in_steps(clock: Stopwatch) -> None:
    """Every key is large in memory and small in the log."""
    results: dict[int, Any] = {}
    job = Job("room")
    stream = job.source(Eager({"only": list(range(KEYS))}, 64)).key_by(lambda n: n)
    kept = stream.aggregate(lambda n: [0] * 60, lambda a, b: a)
    kept.sink(ForeachSink(lambda pair: results.__setitem__(*pair)))
    run_watched(job, clock, memory=64 << 20, flush=FlushConfig(rows=1 << 20, bytes=1 << 30))
    assert len(results) == KEYS and clock.longest <= LIMIT_S


def test_the_list_of_a_window_is_gathered_in_steps(clock: Stopwatch) -> None:
    emitted: list[Any] = []
    job = Job("gather")
    stream = job.source(Eager({"only": list(range(5_500))}, 1)).event_time(lambda _: 1)
    windows = stream.key_by(lambda _: 0).window(Tumbling(10))
    windows.records(lambda _, __, records: records).sink(ForeachSink(emitted.append))
    run_watched(job, clock, flush=FlushConfig(rows=1))
    assert emitted == [list(range(5_500))]
    assert 0 < clock.longest <= LIMIT_S
