"""Outages: the function that finds silences, the same for both engines.

Invariant: what it yields depends on the readings alone. They wait in a map until the watermark has
passed them, and then come in the order of their times, whatever the order of the lines was and
however an engine has cut them into batches.
"""

from collections.abc import Iterator
from typing import Any, Final

from tidelog import ExpiredTimerInfo, Row, StatefulProcessor, StatefulProcessorHandle, TimerValues

GAP_MS: Final = 30_000
MAX_DELAY_MS: Final = 5_000
END_MS: Final = 2**63 - 1
"""The watermark at the end of a bounded input, which Spark does not have."""
KEPT: Final = 3
"""Readings before a silence that are shown."""

INPUT: Final = "device string, time_ms bigint, value double"
OUTPUT: Final = (
    "device string, number bigint, silent_from_ms bigint, silent_ms bigint, "
    "before array<double>, after double"
)


class Outages(StatefulProcessor):
    """Silences per device; runs embedded and in Spark's `transformWithState`."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Readings that wait for their time, what is known, and the last readings."""
        self._handle = handle
        self._waiting = handle.getMapState("waiting", "time_ms bigint", "value double")
        self._totals = handle.getValueState(
            "known", "last_ms bigint, readings bigint, outages bigint"
        )
        self._recent = handle.getListState("recent", "value double")

    def handleInputRows(
        self, key: tuple[Any, ...], rows: Iterator[Row], timerValues: TimerValues
    ) -> Iterator[Row]:
        """Keep readings; of several of the same time the greatest."""
        for row in rows:
            waiting_value = self._waiting.getValue((row.time_ms,))
            if waiting_value is None or waiting_value[0] < row.value:
                self._waiting.updateValue((row.time_ms,), (row.value,))
            self._handle.registerTimer(row.time_ms)
        return iter(())

    def handleExpiredTimer(
        self, key: tuple[Any, ...], timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[Row]:
        """Take the reading whose time has come."""
        if timerValues.getCurrentWatermarkInMs() == END_MS:
            # What the readings themselves have not passed goes on waiting on both engines.
            return
        time = expiredTimerInfo.getExpiryTimeInMs()
        waited = self._waiting.getValue((time,))
        assert waited is not None, "every timer has its reading"
        self._waiting.removeKey((time,))
        last, readings, outages = self._totals.get() or (time, 0, 0)
        recent = list(self._recent.get())
        if time - last > GAP_MS:
            outages += 1
            yield Row(
                device=key[0],
                number=outages,
                silent_from_ms=last,
                silent_ms=time - last,
                before=[value for (value,) in recent],
                after=waited[0],
            )
            recent = []
        self._totals.update((time, readings + 1, outages))
        self._recent.put([*recent, waited][-KEPT:])
