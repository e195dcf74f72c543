"""What leaves memory for table and log, and what a window gathers, does so in steps."""

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from tests.support.pressure import Eager
from tests.support.stopwatch import LIMIT_S, Stopwatch, run_watched
from tidelog import Callback, FlushConfig, Job, StatefulProcessor, Tumbling
from tidelog.table.memory import MemoryTable

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


BUILDS = {
    "summed": lambda stream: keys(stream).sum(int).map(lambda pair: pair[0]),
    "windowed": windowed,
    "remembered": remembered,
}


@pytest.mark.parametrize("build", BUILDS.values(), ids=BUILDS)
def test_a_flush_of_many_rows_lets_others_go_on(build: Any, clock: Stopwatch) -> None:
    emitted: list[Any] = []
    job = Job("flush")
    build(job.source(Eager({"only": list(range(KEYS))}, 4096))).sink(Callback(emitted.append))
    run_watched(job, clock, flush=FlushConfig(rows=1 << 20, bytes=1 << 30))
    assert len(emitted) == KEYS
    assert 0 < clock.longest <= LIMIT_S


def test_rows_that_make_room_for_others_leave_in_steps(clock: Stopwatch) -> None:
    """Every key is large in memory and small in the log."""
    results: dict[int, Any] = {}
    job = Job("room")
    stream = job.source(Eager({"only": list(range(KEYS))}, 64)).key_by(lambda n: n)
    kept = stream.aggregate(lambda n: [0] * 60, lambda a, b: a)
    kept.sink(Callback(lambda pair: results.__setitem__(*pair)))
    run_watched(job, clock, memory=64 << 20, flush=FlushConfig(rows=1 << 20, bytes=1 << 30))
    assert len(results) == KEYS and clock.longest <= LIMIT_S


def test_the_list_of_a_window_is_gathered_in_steps(clock: Stopwatch) -> None:
    emitted: list[Any] = []
    job = Job("gather")
    stream = job.source(Eager({"only": list(range(5_500))}, 1)).event_time(lambda _: 1)
    windows = stream.key_by(lambda _: 0).window(Tumbling(10))
    windows.records(lambda _, __, records: records).sink(Callback(emitted.append))
    run_watched(job, clock, flush=FlushConfig(rows=1))
    assert emitted == [list(range(5_500))]
    assert 0 < clock.longest <= LIMIT_S
