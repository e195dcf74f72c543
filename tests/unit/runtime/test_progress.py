"""A job says how steadily it goes on: how long a task stood still while records waited for it, and
how long records take from the source to the end of their path."""

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.clock import VirtualClock, in_virtual_time
from tests.support.pipelines import Outside, Portions, acted_on, config, running
from tests.support.pressure import Eager
from tests.support.stopwatch import Stopwatch, run_watched
from tests.support.workers import runner_of, with_workers
from tidelog import (
    CheckpointConfig,
    ForeachSink,
    Job,
    JobRunner,
    JobStatus,
    RateSource,
    SinkContext,
    Tumbling,
    status_of,
)
from tidelog.connectors.program.sinks import CallbackWriter
from tidelog.effects import Effects
from tidelog.runtime.status.distribution import Distribution
from tidelog.runtime.status.status import OperatorStatus
from tidelog.storage.memory import MemoryStore

NOTHING = ForeachSink(lambda _: None)
NUMBERS = list(range(400))


def operator(status: JobStatus, name: str) -> OperatorStatus:
    [found] = [each for each in status.operators if each.id == name]
    return found


def latencies(status: JobStatus) -> dict[str, Distribution]:
    """By operator, where there are any."""
    return {each.id: each.record_latency_s for each in status.operators if each.record_latency_s}


def standstills(records: Sequence[logging.LogRecord]) -> str:
    events = [record for record in records if getattr(record, "event", "") == "standstill"]
    return [record.getMessage() for record in events]


class SlowSink(ForeachSink):
    """Takes its time, now and then, to make room for more."""

    def __init__(
        self, make_room: Callable[[], None], full: Callable[[Sequence[Any]], bool]
    ) -> None:
        super().__init__(print)
        self._make_room = make_room
        self._full = full

    def open(self, context: SinkContext) -> CallbackWriter:
        writer, written = super().open(context), list[Any]()

        def write(records: Sequence[Any]) -> None:
            written[:] = records

        writer.write = write  # type: ignore[method-assign]
        writer.full = lambda: self._full(written)  # type: ignore[method-assign]
        writer.make_room = self._make_room  # type: ignore[method-assign]
        return writer


def at(number: int, clock: Stopwatch, seconds: float) -> Callable[[int], int]:
    """A function that takes long for one record."""

    def function(record: int) -> int:
        clock.spend(seconds if record == number else 0.0)
        return record

    return function


def by_a_call(stream: Any, clock: Stopwatch) -> None:
    stream.rebalance().map(at(7, clock, 3.0), name="slow").sink(NOTHING)


def by_a_key(stream: Any, clock: Stopwatch) -> None:
    stream.rebalance().map(int, name="slow").key_by(at(7, clock, 3.0)).count().sink(NOTHING)


def by_a_sink(stream: Any, clock: Stopwatch) -> None:
    sink = SlowSink(lambda: clock.spend(3.0), lambda records: 7 in records)
    stream.rebalance().sink(sink, name="slow")


@pytest.mark.parametrize("build", [by_a_call, by_a_key, by_a_sink])
def test_a_task_that_handled_nothing_while_records_waited_stood_still(
    build: Any, caplog: pytest.LogCaptureFixture
) -> None:
    clock, job = Stopwatch(), Job("standstill")
    build(job.source(Eager({"one": NUMBERS, "two": NUMBERS[100:]}, 10)), clock)
    slow = operator(run_watched(job, clock), "slow")
    assert slow.longest_standstill_s == pytest.approx(3.0, abs=0.1)
    assert slow.long_standstills == 1
    [reported] = [text for text in standstills(caplog.records) if text.startswith("slow-0")]
    assert "handled no record for 3.0 s" in reported


def test_a_source_that_waits_for_its_sink_stands_still() -> None:
    clock, job = Stopwatch(), Job("back-pressure")
    sink = SlowSink(lambda: clock.spend(2.0), lambda records: any(n % 100 == 0 for n in records))
    job.source(Eager({"only": NUMBERS}, 10)).sink(sink, name="slow")
    [status] = run_watched(job, clock).operators
    assert status.longest_standstill_s == pytest.approx(2.0, abs=0.1)
    assert status.long_standstills == 4


def test_work_record_by_record_is_no_standstill_however_long_a_buffer_takes() -> None:
    clock, job = Stopwatch(), Job("steady")
    source = Eager({"only": list(range(4_000))}, 2_000)

    def slow(record: int) -> int:
        clock.spend(0.001)
        return record

    job.source(source).rebalance().map(slow, name="slow").sink(NOTHING)
    status = run_watched(job, clock)
    assert 0 < operator(status, "slow").longest_standstill_s < 0.1
    assert [each.long_standstills for each in status.operators] == [0, 0]


def test_a_task_without_input_does_not_stand_still(caplog: pytest.LogCaptureFixture) -> None:
    job = Job("quiet")
    job.source(Portions({"only": NUMBERS[:20]}, pause=30.0)).rebalance().map(int).sink(NOTHING)
    status = run_watched(job, Stopwatch())
    assert [each.longest_standstill_s for each in status.operators] == [0.0, 0.0]
    assert standstills(caplog.records) == []


def test_each_standstill_is_counted_and_an_operator_is_reported_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, job = Stopwatch(), Job("often")
    sink = SlowSink(lambda: clock.spend(7.0), lambda _: True)
    job.source(Eager({"only": NUMBERS[:300]}, 10)).sink(sink, name="slow")
    [status] = run_watched(job, clock).operators
    assert status.long_standstills == 30
    assert len(standstills(caplog.records)) == -(-30 * 7 // 60)


def test_a_standstill_is_seen_and_reported_while_it_lasts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tidelog.runtime.operators.progress.STANDSTILL_S", 0.05)
    answered, job = threading.Event(), Job("hangs")
    sink = SlowSink(lambda: bool(answered.wait(30)), lambda _: not answered.is_set())
    job.source(RateSource(None)).rebalance().sink(sink, name="hangs")
    settings = replace(config(), work_dir=tmp_path, checkpoint=CheckpointConfig(interval=3_600))

    async def seen() -> OperatorStatus:
        effects = Effects()
        runner = JobRunner(job, MemoryStore(), settings, effects)
        try:
            async with running(runner) as task:
                while not standstills(caplog.records):
                    assert not task.done(), task
                    await asyncio.sleep(0.01)
                found = operator(status_of(runner), "hangs")
                answered.set()
                return found
        finally:
            answered.set()
            effects.offload.close()

    status = asyncio.run(seen())
    assert status.longest_standstill_s >= 0.05
    assert status.long_standstills >= 1


def through_a_chain(stream: Any) -> str:
    stream.map(int).sink(NOTHING, name="last")
    return "source"


def through_keys(stream: Any) -> str:
    stream.key_by(lambda n: n).count(emit_updates=True, name="count").rebalance().sink(
        NOTHING, name="last"
    )
    return "last"


def past_a_window(stream: Any) -> str:
    timed = stream.event_time(lambda n: n).key_by(lambda n: n)
    timed.window(Tumbling(1_000_000)).count(name="last").sink(NOTHING)
    return "last"


PATHS = [through_a_chain, through_keys, past_a_window]


@pytest.mark.parametrize("path", PATHS)
def test_the_latency_of_a_record_is_the_time_from_its_reading_to_the_end_of_its_path(
    path: Any,
) -> None:
    clock, job = Stopwatch(), Job("latency")
    source = job.source(Eager({"only": NUMBERS[:40]}, 10))
    last = path(source.map(at(7, clock, 1.0), name="slow"))
    # One marker before the call of a second and one after it: no other time passes.
    assert latencies(run_watched(job, clock)) == {last: Distribution(0.0, 0.0, 1.0, 1.0)}


def test_branches_are_measured_in_turn_and_one_without_a_sink_at_its_last_operator() -> None:
    clock, job = Stopwatch(), Job("branches")
    slow = job.source(Eager({"only": NUMBERS[:40]}, 10)).map(at(7, clock, 1.0))
    slow.rebalance().sink(NOTHING, name="first")
    slow.rebalance().map(int, name="second")
    first, second = Distribution(*[1.0] * 4), Distribution(*[0.0] * 4)
    assert latencies(run_watched(job, clock)) == {"first": first, "second": second}


def ended(job: Job, clock: VirtualClock, **settings: Any) -> JobStatus:
    """The status after a job in as many workers as the test has."""

    async def run() -> JobStatus:
        world = in_virtual_time(1, clock)
        runner = runner_of(job, MemoryStore("memory://ended"), config(**settings), world)
        await runner.run()
        return status_of(runner)

    return asyncio.run(run())


def test_records_that_wait_in_longer_channels_have_a_longer_latency() -> None:
    def latency(buffers: int) -> Distribution | None:
        clock, job = VirtualClock(), Job("queue")
        source = job.source(Eager({"only": NUMBERS[:100]}, 1)).rebalance()
        source.map(lambda n: clock.spend(0.1) or n).sink(NOTHING, name="last")
        return ended(job, clock, parallelism=1, channel_buffers=buffers).record_latency_s

    short, long = latency(2), latency(20)
    assert short is not None and 0.2 <= short.max < 1.0
    assert long is not None and 2.0 <= long.max < 4.0


def test_latencies_cross_workers_and_each_figure_is_that_of_all_of_them() -> None:
    clock, job = Stopwatch(), Job("workers")
    source = job.source(Eager({f"split-{n}": NUMBERS for n in range(4)}, 10))
    counted = source.key_by(lambda n: n % 7).count(name="count").rebalance()
    counted.map(at(7, clock, 0.0)).sink(NOTHING, name="last")
    source.rebalance().map(at(7, clock, 2.0), name="slow").sink(NOTHING, name="side")
    with with_workers(2):
        status = ended(job, clock, parallelism=2)
    assert len(status.workers) == 2
    assert list(latencies(status)) == ["map", "slow"]
    assert operator(status, "slow").long_standstills >= 4  # each split has the number once
    assert status.longest_standstill_s >= 2.0


def test_latencies_are_those_of_the_last_minute() -> None:
    def latency(at_s: float) -> Distribution | None:
        job = Job("forgotten")
        records = Portions({"only": NUMBERS[:15]}, portion=5, pause=300.0)
        job.source(records).sink(Outside(), name="last")
        looked = lambda runner: asyncio.sleep(0, status_of(runner))  # noqa: E731
        seldom = config(checkpoint=CheckpointConfig(interval=1e6, timeout=1e6))
        _, status = acted_on(job, MemoryStore(), looked, at=at_s, settings=seldom, crash=True)
        return status.record_latency_s

    assert latency(310.0) == Distribution(0.0, 0.0, 0.0, 0.0)
    assert latency(380.0) is None
