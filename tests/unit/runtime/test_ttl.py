"""What has expired and is still stored stays a small share of what lives, at any write rate.

Checkpoints are taken while timers fire, however long each takes; a restart goes on there.
"""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.clock import VirtualClock, in_virtual_time
from tests.support.depth import more_in_depth
from tests.support.pipelines import Outside, config
from tests.support.pressure import (
    Alarms,
    Eager,
    checkpoints,
    outside_as_of,
    pressed,
    resumed,
    under_pressure,
)
from tidelog import CheckpointConfig, ForeachSink, Job, JobRunner, RateSource, StatefulProcessor
from tidelog.state.schema.decode import RowDecoder
from tidelog.storage.memory import MemoryStore

TTL_MS = 10_000
SECONDS = 36


class Remember(StatefulProcessor):
    """Keeps a value, a list and a map entry for every key it sees."""

    def __init__(self, kinds: str) -> None:
        self._kinds = kinds

    def init(self, handle: Any) -> None:
        self._value = handle.getValueState("value", "n bigint", TTL_MS)
        self._list = handle.getListState("list", "n bigint", TTL_MS)
        self._map = handle.getMapState("map", "n bigint", "m bigint", TTL_MS)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        for number in rows:
            if "v" in self._kinds:
                self._value.update((number,))
            if "l" in self._kinds:
                self._list.appendValue((number,))
            if "m" in self._kinds:
                self._map.updateValue((number,), (number,))
        return iter(())


def stored(runner: JobRunner) -> list[int]:
    """Expiry times of all stored rows of the processor."""
    expiries = []
    for task in runner.incarnation.tasks:
        if task.id.operator == "process":
            backend = task.parts.backend
            decoder = RowDecoder(backend.registry.infos())
            for key, value in backend.table.scan(b"", None):
                found = decoder.decode(key, value).expires_ms
                expiries.append(max(found) if isinstance(found, list) else found)
    return expiries


async def watched(runner: JobRunner, clock: VirtualClock) -> list[tuple[int, int]]:
    """(living, expired) rows of the table now and then, while the job runs."""
    seen: list[tuple[int, int]] = []

    async def watch() -> None:
        await clock.sleep(TTL_MS / 1000 + 4)
        while True:
            await clock.sleep(2.3)
            expiries = stored(runner)
            expired = sum(expiry <= clock.now_ms() for expiry in expiries)
            seen.append((len(expiries) - expired, expired))

    watching = asyncio.ensure_future(watch())
    await runner.run()
    watching.cancel()
    return seen


def run(kinds: str, rate: float, seconds: int, **settings: Any) -> list[tuple[int, int]]:
    clock = VirtualClock()
    source = RateSource(rate, limit=int(rate * seconds), clock=clock)
    job = Job("ttl")
    keyed = job.source(source).key_by(lambda n: n)
    keyed.transform_with_state(lambda: Remember(kinds)).sink(ForeachSink(lambda _: None))
    effects = in_virtual_time(1, clock)
    chosen = config(parallelism=1, key_groups=16, **settings)
    return asyncio.run(watched(JobRunner(job, MemoryStore("memory://ttl"), chosen, effects), clock))


@pytest.mark.parametrize("kinds", more_in_depth(["vlm"], ["v", "lm"]))
def test_expired_rows_are_a_small_share_of_those_that_live(
    kinds: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Visits at a steady pace would be enough for so few rows; those for what expired have to be.
    monkeypatch.setattr("tidelog.state.ttl.ROWS_PER_SECOND", more_in_depth(64, 1024))
    rate = more_in_depth(200, 1_500) // len(kinds)
    living = rate * len(kinds) * TTL_MS // 1000
    seen = run(kinds, rate, SECONDS)
    assert len(seen) >= 8
    for alive, expired in seen:
        assert alive > living / 2, "rows of the last second may be in the write buffer"
        assert expired < living / 4, f"{expired} expired rows are stored beside {alive}"


COUNT = 40
HANDLER_S = 0.05
"""Longer than the turn of a task."""


class Listed(Alarms):
    """Makes its output before it returns."""

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Any:
        return list(super().handleExpiredTimer(key, timerValues, expiredTimerInfo))


@pytest.mark.parametrize("alarms", [Alarms, Listed])
@pytest.mark.parametrize("last", [100, 5], ids=["watermark", "end"])
def test_barriers_pass_between_timers_and_a_restart_fires_the_rest_once(
    alarms: Any, last: int
) -> None:
    times = [5] * (COUNT - 1) + [last]

    def job(sink: Outside, clock: VirtualClock) -> Job:
        job = Job("alarms")
        timed = job.source(Eager({"only": list(enumerate(times))})).event_time(lambda r: r[1])
        keyed = timed.key_by(lambda r: r[0])
        made = lambda: alarms(clock, HANDLER_S, lambda: 10)  # noqa: E731
        keyed.transform_with_state(made, time_mode="event").sink(sink)
        return job

    settings = pressed(parallelism=1, checkpoint=CheckpointConfig(interval=0.2, timeout=1e6))
    sink, objects = under_pressure(job, settings)
    assert sorted(sink.records) == list(range(COUNT))
    amid = {
        fired: each
        for each in checkpoints(objects)
        if 0 < (fired := len(outside_as_of(sink, each).records)) < COUNT
    }
    assert len(amid) >= 3, "checkpoints amid the firing"
    for checkpoint in amid.values():
        again = resumed(job, objects, sink, checkpoint, settings)
        assert sorted(again.records) == list(range(COUNT))
