"""Checkpoints are taken while timers fire, however long the handler of each takes."""

from typing import Any

import pytest

from tests.support.clock import VirtualClock
from tests.support.pipelines import Outside
from tests.support.pressure import Eager, checkpoints, outside_as_of, pressed, run_pressed
from tidelog import Job, StatefulProcessor
from tidelog.checkpoint.schedule import Schedule
from tidelog.storage.memory import MemoryStore

COUNT = 40
HANDLER_S = 0.05
"""Longer than the turn of a task."""


class Alarms(StatefulProcessor):
    """A timer for each key, all due at once, whose handler is slow."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock

    def init(self, handle: Any) -> None:
        self._handle = handle

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        self._handle.registerTimer(10)
        return ()

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Any:
        self._clock.spend(HANDLER_S)
        yield key[0]


class Listed(Alarms):
    """Makes its output before it returns."""

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Any:
        return list(super().handleExpiredTimer(key, timerValues, expiredTimerInfo))


@pytest.mark.parametrize("alarms", [Alarms, Listed])
@pytest.mark.parametrize("last", [100, 5], ids=["watermark", "end"])
def test_checkpoints_complete_while_timers_with_slow_handlers_fire(alarms: Any, last: int) -> None:
    sink, objects, clock = Outside(), MemoryStore("memory://alarms"), VirtualClock()
    job = Job("alarms")
    times = [5] * (COUNT - 1) + [last]
    timed = job.source(Eager({"only": list(enumerate(times))})).event_time(lambda r: r[1])
    keyed = timed.key_by(lambda r: r[0])
    keyed.transform_with_state(lambda: alarms(clock), time_mode="event").sink(sink)
    settings = pressed(parallelism=1, checkpoint=Schedule(interval=0.2, timeout=1e6))
    run_pressed(job, objects, settings, clock)
    assert sorted(sink.records) == list(range(COUNT))
    fired = {len(outside_as_of(sink, each).records) for each in checkpoints(objects)}
    assert len(fired - {0, COUNT}) >= 3, "checkpoints amid the firing"
