"""A `StatefulProcessor` behaves here as it does in Spark's `transformWithState`."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.clock import VirtualClock
from tests.unit.state.conftest import Bench
from tidelog import StatefulProcessor, StatefulProcessorHandle
from tidelog.errors import ConfigError, StateSchemaError, UserFunctionError
from tidelog.runtime.channels.messages import KeyedBatch
from tidelog.runtime.operators.operator import OperatorContext
from tidelog.runtime.operators.process import Process
from tidelog.state.key_groups import encode_key, key_group
from tidelog.state.processor import MAX_WATERMARK, TimeMode


class Recorder(StatefulProcessor):
    """Remembers its calls; `act` is run for every row, `define` in `init`."""

    def __init__(self, act: Any = None, define: Any = None) -> None:
        self.calls: list[Any] = []
        self.act = act
        self.define = define

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.count = handle.getValueState("count", "n int")
        if self.define:
            self.define(self)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        taken = list(rows)
        self.calls.append((key, taken, timerValues.getCurrentWatermarkInMs()))
        for row in taken:
            if self.act:
                self.act(self.handle, row)
        self.count.update(((self.count.get() or (0,))[0] + len(taken),))
        yield key, self.count.get()

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Any:
        self.calls.append((key, expiredTimerInfo.getExpiryTimeInMs()))
        yield "fired", key, self.count.get()


def opened(bench: Bench, processor: StatefulProcessor, mode: TimeMode = "none") -> Process:
    process = Process(processor, mode)
    process.open(OperatorContext(VirtualClock(), bench.backend))
    return process


def batch(*rows: tuple[Any, Any], times: list[int] | None = None) -> KeyedBatch:
    """Rows given as (key, row)."""
    keys = [encode_key(key) for key, _ in rows]
    groups = [key_group(key, 4).to_bytes(2, "big") for key in keys]
    return KeyedBatch([row for _, row in rows], times, keys, groups)


def outputs(batches: Any) -> list[Any]:
    return [record for each in batches for record in each.records]


def test_rows_of_a_buffer_come_grouped_by_key_in_order(bench: Bench) -> None:
    """A composite key arrives as its tuple."""
    recorder = Recorder()
    process = opened(bench, recorder)
    out = outputs(process.process(batch(("a", 1), (("b", 2), 2), ("a", 3))))
    assert [call[:2] for call in recorder.calls] == [(("a",), [1, 3]), (("b", 2), [2])]
    assert out == [(("a",), (2,)), (("b", 2), (1,))]


def test_late_rows_are_dropped_and_counted_in_event_mode_only(bench: Bench) -> None:
    recorder = Recorder()
    process = opened(bench, recorder, "event")
    process.watermark(100)
    rows = batch(("a", 1), ("a", 2), ("a", 3), times=[99, 100, 101])
    process.process(rows)
    assert recorder.calls == [(("a",), [3], 100)]
    assert process.late_records == 2

    other = Recorder()
    lenient = opened(Bench(), other, "none")
    lenient.watermark(100)
    lenient.process(rows)
    assert other.calls[0][1] == [1, 2, 3]


def test_timers_at_or_below_the_watermark_fire_with_their_key_and_state(bench: Bench) -> None:
    recorder = Recorder(StatefulProcessorHandle.registerTimer)
    process = opened(bench, recorder, "event")
    process.process(batch(("a", 10), ("b", 11), ("a", 12), times=[1, 2, 3]))
    assert outputs(process.watermark(9)) == []
    fired = outputs(process.watermark(11))
    assert sorted(fired) == [("fired", ("a",), (2,)), ("fired", ("b",), (1,))]
    assert outputs(process.watermark(11)) == []
    assert outputs(process.watermark(MAX_WATERMARK)) == [("fired", ("a",), (2,))]


@pytest.mark.parametrize("time", [99, 100])
def test_a_timer_at_or_before_the_watermark_is_refused(bench: Bench, time: int) -> None:
    recorder = Recorder(StatefulProcessorHandle.registerTimer)
    process = opened(bench, recorder, "event")
    process.watermark(100)
    with pytest.raises(ConfigError, match="after the watermark 100"):
        process.process(batch(("a", time), times=[500]))


def test_processing_timers_follow_the_clock_not_the_watermark(bench: Bench) -> None:
    recorder = Recorder(StatefulProcessorHandle.registerTimer)
    process = opened(bench, recorder, "processing")
    process.process(batch(("a", 50)))
    assert outputs(process.watermark(1000)) == []
    assert outputs(process.tick(49)) == []
    assert outputs(process.tick(50)) == [("fired", ("a",), (1,))]


@pytest.mark.parametrize(
    ("act", "error", "message"),
    [
        (lambda handle: handle.registerTimer(1), ConfigError, "'processing' or 'event'"),
        (lambda handle: handle.deleteTimer(1), ConfigError, "'processing' or 'event'"),
        (lambda handle: handle.getValueState("x", "n int"), StateSchemaError, "within init"),
        (lambda handle: 1 // 0, UserFunctionError, r"(?s)Recorder\.handleInputRows.*ZeroDivision"),
    ],
)
def test_what_a_handler_may_not_do_is_an_error_that_says_so(
    bench: Bench, act: Callable[[Any], object], error: type[Exception], message: str
) -> None:
    process = opened(bench, Recorder(lambda handle, row: act(handle)))
    with pytest.raises(error, match=message):
        process.process(batch(("a", 1)))


@pytest.mark.parametrize("name", ["count", "$timers"])
def test_a_taken_or_reserved_state_name_is_refused(bench: Bench, name: str) -> None:
    twice = Recorder(define=lambda self: self.handle.getListState(name, "n int"))
    with pytest.raises(StateSchemaError, match="taken or reserved"):
        opened(bench, twice)


def test_delete_if_exists_clears_the_key_and_tolerates_unknown_names(bench: Bench) -> None:
    recorder = Recorder()
    process = opened(bench, recorder)
    process.process(batch(("a", 1), ("b", 1)))
    recorder.act = StatefulProcessorHandle.deleteIfExists
    assert outputs(process.process(batch(("a", "count")))) == [(("a",), (1,))]
    process.process(batch(("a", "no such state")))


@pytest.mark.parametrize("ttl", [3.6e6, 0, -5, "1h", True, 2**64])
def test_a_ttl_is_whole_milliseconds_above_none(bench: Bench, ttl: Any) -> None:
    seen = Recorder(define=lambda self: self.handle.getMapState("seen", "id int", "n int", ttl))
    with pytest.raises(ConfigError, match="TTL of state 'seen'; expected milliseconds as int"):
        opened(bench, seen)


@pytest.mark.parametrize(
    "hasty",
    [lambda self: self.count.update((0,)), lambda self: self.handle.registerTimer(5)],
    ids=["state", "timer"],
)
def test_what_belongs_to_a_key_is_refused_in_init(bench: Bench, hasty: Any) -> None:
    with pytest.raises((StateSchemaError, ConfigError), match="handleInputRows"):
        opened(bench, Recorder(define=hasty), "processing")


def test_event_mode_needs_event_times() -> None:
    process = opened(Bench(), Recorder(), "event")
    with pytest.raises(ConfigError, match="event_time"):
        list(process.process(batch(("a", 1))))


@pytest.mark.parametrize("call", ["registerTimer", "deleteTimer"])
@pytest.mark.parametrize("at", [1.5, "5", None, 1 << 63, -(1 << 63) - 1], ids=str)
def test_a_timer_has_milliseconds_as_int(call: str, at: Any) -> None:
    process = opened(Bench(), Recorder(lambda handle, at: getattr(handle, call)(at)), "processing")
    with pytest.raises(ConfigError, match=re.escape(f"{call}(...); expected milliseconds")):
        list(process.process(batch(("a", at))))
