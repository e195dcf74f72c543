"""Sensors that were silent for five minutes: a processor with state and timers.

tidelog run silent_sensors.py:job --input data/readings --output out/silent --store out/silent-store
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tidelog import (
    ExpiredTimerInfo,
    FileSink,
    Job,
    JsonLinesSource,
    Row,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

SILENCE_MS = 300_000


@dataclass
class Arguments:
    input: str
    output: str


class Silence(StatefulProcessor):
    """Remembers the newest reading of a sensor, and reports it when nothing follows in time."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.newest = handle.getValueState("newest", "ms long, level double")

    def handleInputRows(
        self, key: tuple[Any, ...], rows: Iterator[Row], timerValues: TimerValues
    ) -> Iterator[Row]:
        for row in rows:
            newest = self.newest.get()
            if newest is not None:
                self.handle.deleteTimer(newest[0] + SILENCE_MS)
                # Event time moves after this buffer, so a row of it may come before the timer fires.
                if row.ms > newest[0] + SILENCE_MS:
                    yield Row(sensor=key[0], silent_since_ms=newest[0], level=newest[1])
            self.newest.update((row.ms, row.level))
            self.handle.registerTimer(row.ms + SILENCE_MS)

    def handleExpiredTimer(
        self, key: tuple[Any, ...], timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[Row]:
        newest = self.newest.get()
        if newest is not None:
            yield Row(sensor=key[0], silent_since_ms=newest[0], level=newest[1])
            self.newest.clear()


def job(arguments: Arguments) -> Job:
    job = Job("silent-sensors")
    readings = job.source(JsonLinesSource(arguments.input))
    timed = readings.event_time(lambda reading: reading.ms)
    silent = timed.key_by(lambda reading: reading.sensor).transform_with_state(
        Silence, time_mode="event"
    )
    silent.map(lambda row: row.asDict()).sink(FileSink(arguments.output))
    return job
