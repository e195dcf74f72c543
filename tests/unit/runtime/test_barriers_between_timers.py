"""Checkpoints are taken while timers fire, however long each takes; a restart goes on there."""

from typing import Any

import pytest

from tests.support.clock import VirtualClock
from tests.support.pipelines import Outside
from tests.support.pressure import (
    Eager,
    checkpoints,
    outside_as_of,
    pressed,
    resumed,
    under_pressure,
)
from tidelog import Job, StatefulProcessor
from tidelog.checkpoint.schedule import Schedule

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
def test_barriers_pass_between_timers_and_a_restart_fires_the_rest_once(
    alarms: Any, last: int
) -> None:
    times = [5] * (COUNT - 1) + [last]

    def job(sink: Outside, clock: VirtualClock) -> Job:
        job = Job("alarms")
        timed = job.source(Eager({"only": list(enumerate(times))})).event_time(lambda r: r[1])
        keyed = timed.key_by(lambda r: r[0])
        keyed.transform_with_state(lambda: alarms(clock), time_mode="event").sink(sink)
        return job

    settings = pressed(parallelism=1, checkpoint=Schedule(interval=0.2, timeout=1e6))
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
