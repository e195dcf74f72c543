"""Python iterables as sources: read again from a position, with the same records.

A source that reads only so many splits at once reads all of them, and event time waits.

The rate source: records when they are due, each number once, the same ones after a restart.
"""

from collections import Counter
from collections.abc import Iterator
from operator import itemgetter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.clock import VirtualClock
from tests.support.pipelines import Outside, acted_on, config, run
from tests.unit.connectors.sources.reading import check_every_restart, read_all
from tidelog import (
    ConfigError,
    IterableSource,
    Job,
    RateSource,
    RestoreError,
    Source,
    SplitReader,
    Tumbling,
)
from tidelog.storage.memory import MemoryStore


@given(st.integers(0, 5000), st.sampled_from([list, tuple, iter]))
def test_a_restart_from_every_position_gives_the_remaining_records(size: int, kind: Any) -> None:
    source = IterableSource(lambda: kind(range(size)))
    check_every_restart(source, "records", list(range(size)))


def test_iterators_that_wait_and_rates_go_on_from_every_position_too() -> None:
    waiting = IterableSource(lambda: iter(range(30)), blocking=True)
    check_every_restart(waiting, "records", list(range(30)))
    check_every_restart(RateSource(None, splits=2, limit=9000), "1", list(range(1, 9000, 2)))


@pytest.mark.parametrize("records", [iter([1]), {1, 2}, 5])
def test_what_cannot_be_read_twice_in_the_same_order_is_refused(records: Any) -> None:
    with pytest.raises(ConfigError, match=f"split 'records'; .*found {type(records).__name__}"):
        IterableSource(records)


def test_an_iterable_that_became_shorter_fails_the_restore() -> None:
    with pytest.raises(RestoreError, match=r"at least 4 records.*found 3"):
        IterableSource([1, 2, 3]).open("records", 4)


def test_closing_a_reader_closes_its_generator() -> None:
    closed = []

    def records() -> Iterator[int]:
        try:
            yield from range(5000)
        finally:
            closed.append(True)

    reader = IterableSource(records).open("records", None)
    reader.read()
    reader.close()
    assert closed == [True]


SPLITS = {f"split {number}": number for number in range(11)}
HOUR_MS = 3_600_000


class Hours(SplitReader):
    """A record a minute of one hour, ten at a time."""

    def __init__(self, source: "Few", hour: int, position: int) -> None:
        self.position = position
        self._source = source
        self._hour = hour
        source.opened.add(hour)
        source.most = max(source.most, len(source.opened))

    def read(self) -> list[Any] | None:
        first, self.position = self.position, min(self.position + 10, 60)
        minutes = range(first, self.position)
        return [(self._hour, self._hour * HOUR_MS + m * 60_000) for m in minutes] or None

    def close(self) -> None:
        self._source.opened.discard(self._hour)


class Few(Source):
    """Later hours come first: who takes time from some of the splits drops what the rest has."""

    def __init__(self, max_active_splits: int | None, *, blocking: bool) -> None:
        self.max_active_splits = max_active_splits
        self.blocking = self.reads_without_waiting = blocking
        self.opened: set[int] = set()
        self.most = 0

    def discover(self) -> list[str]:
        return list(SPLITS)[::-1]

    def open(self, split: str, position: Any) -> Hours:
        return Hours(self, SPLITS[split], position or 0)


@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("parallelism", [1, 2])
def test_no_record_is_late_because_its_split_had_to_wait(
    parallelism: int, apart: bool, blocking: bool
) -> None:
    source, sink = Few(2, blocking=blocking), Outside()
    job = Job("hours")
    read = job.source(source)
    if apart:  # a second use gives `event_time` a task of its own
        read.sink(Outside(), name="copies")
    timed = read.event_time(itemgetter(1), max_ahead_ms=60_000)
    windows = (
        timed.key_by(itemgetter(0))
        .window(Tumbling(HOUR_MS))
        .aggregate(lambda _: 1, lambda a, b: a + b)
    )
    windows.sink(sink)
    run(job, MemoryStore(), config(parallelism=parallelism))
    assert Counter(sink.records) == {(h, h * HOUR_MS, 60): 1 for h in SPLITS.values()}
    assert 0 < source.most <= 2 * parallelism


@given(st.integers(1, 5), st.integers(0, 20_000), st.integers(-5, 5))
def test_the_splits_produce_each_number_once(splits: int, limit: int, start: int) -> None:
    source = RateSource(None, splits=splits, limit=limit, start=start)
    assert len(list(source.discover())) == splits
    assert sorted(read_all(source)) == list(range(start, start + limit))


async def test_records_come_when_they_are_due() -> None:
    clock = VirtualClock(auto=False)
    reader = RateSource(4, clock=clock).open("0", None)
    assert reader.read() == []
    assert reader.delay_s == 0.25
    await clock.advance(1)
    assert reader.read() == [0, 1, 2, 3]
    await clock.advance(0.125)
    assert reader.read() == []
    assert reader.delay_s == 0.125
    await clock.advance(100)
    assert reader.read() == list(range(4, 404))


async def test_a_restored_split_goes_on_at_the_rate() -> None:
    clock = VirtualClock(auto=False)
    reader = RateSource(10, limit=105, clock=clock).open("0", (100, 1))
    assert reader.read() == []
    await clock.advance(0.25)
    assert reader.read() == [100, 101]
    await clock.advance(60)
    assert reader.read() == [102, 103, 104]
    assert reader.read() is None


@pytest.mark.parametrize(("before", "now"), [(1, 3), (2, 3), (3, 2)])
def test_a_restart_with_another_number_of_splits_is_refused(before: int, now: int) -> None:
    store, sink, clock = MemoryStore(), Outside(), VirtualClock()

    def numbers(splits: int) -> Job:
        job = Job("numbers")
        job.source(RateSource(10, splits=splits, limit=200, clock=clock)).sink(sink)
        return job

    acted_on(numbers(before), store, at=4.5, crash=True, clock=clock)
    message = rf"split '\d' of a RateSource; expected one of {now} splits .*found one of {before}\."
    with pytest.raises(RestoreError, match=message):
        acted_on(numbers(now), store, at=0, clock=clock)
    acted_on(numbers(before), store, at=0, clock=clock)
    assert sorted(sink.records) == list(range(200))


def test_numbers_of_a_split_that_is_no_more_are_not_made_twice() -> None:
    source = RateSource(None, splits=2, limit=9)
    assert list(source.open("1", (1, 2)).read() or ()) == [3, 5, 7]
    with pytest.raises(RestoreError, match=r"split '2' of a RateSource; expected one of 2 splits"):
        source.open("2", (1, 2))
