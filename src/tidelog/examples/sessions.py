"""Sessions: what each user did between two pauses, in event time.

Input lines are {"user": <string>, "time_ms": <integer>, "page": <string, optional>}, each at most
`MAX_DELAY_MS` behind the newest one of its source subtask; later ones are left out. Several files
are read one after the other, so their names have to sort by time.

A session ends `GAP_MS` after its last event. Each closed session becomes one line {"user":,
"number": counted from 1 per user, "start_ms":, "end_ms": time of the last event, "events":,
"pages": in order of time}.
"""

import zlib
from collections.abc import Iterator
from operator import attrgetter, itemgetter
from typing import Any, Final

from tidelog import (
    ExpiredTimerInfo,
    Job,
    JobArguments,
    JsonLinesSource,
    RateSource,
    Row,
    Source,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)
from tidelog.examples import output_sink

GAP_MS: Final = 30_000
MAX_DELAY_MS: Final = 5_000

_START_MS: Final = 1_767_225_600_000  # 2026-01-01 in UTC
_EVENTS: Final = 200_000
_EVENTS_PER_S: Final = 20_000


def job(arguments: JobArguments) -> Job:
    """Sessions of `--input`, or of made-up events (without end when `--follow` is set)."""
    sessions = Job("sessions")
    (
        sessions.source(_source(arguments))
        .event_time(attrgetter("time_ms"), max_delay_ms=MAX_DELAY_MS)
        .key_by(attrgetter("user"))
        .transform_with_state(Sessions, time_mode="event", name="sessions")
        .sink(output_sink(arguments))
    )
    return sessions


class Sessions(StatefulProcessor):
    """Merging session windows per user; also runs in Spark's `transformWithState`."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Visits wait in a list until a session that holds them is closed."""
        self._handle = handle
        self._closed = handle.getValueState("closed", "count bigint")
        self._open = handle.getMapState("open", "start_ms bigint", "last_ms bigint")
        self._visits = handle.getListState("visits", "time_ms bigint, page string")

    def handleInputRows(
        self, key: tuple[Any, ...], rows: Iterator[Row], timerValues: TimerValues
    ) -> Iterator[Row]:
        """Add events to the open sessions."""
        visits = [(row.time_ms, row.page if "page" in row else None) for row in rows]
        self._visits.appendList(visits)
        for time, _ in visits:
            self._extend(time)
        return iter(())

    def handleExpiredTimer(
        self, key: tuple[Any, ...], timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[Row]:
        """Close the session whose pause is over."""
        last = expiredTimerInfo.getExpiryTimeInMs() - GAP_MS
        start = next(start for (start,), (end,) in self._open.iterator() if end == last)
        self._open.removeKey((start,))
        visits = sorted(self._visits.get(), key=itemgetter(0))
        within = [visit for visit in visits if start <= visit[0] <= last]
        self._visits.put([visit for visit in visits if not start <= visit[0] <= last])
        number = (self._closed.get() or (0,))[0] + 1
        self._closed.update((number,))
        yield Row(
            user=key[0],
            number=number,
            start_ms=start,
            end_ms=last,
            events=len(within),
            pages=[page for _, page in within if page is not None],
        )

    def _extend(self, time: int) -> None:
        """Merge all open sessions that the event at `time` touches into one."""
        first = last = time
        for (start,), (end,) in list(self._open.iterator()):
            if start - GAP_MS < time < end + GAP_MS:
                self._open.removeKey((start,))
                self._handle.deleteTimer(end + GAP_MS)
                first, last = min(first, start), max(last, end)
        self._open.updateValue((first,), (last,))
        self._handle.registerTimer(last + GAP_MS)


def _source(arguments: JobArguments) -> Source:
    if arguments.input is None:
        return RateSource(_EVENTS_PER_S, limit=None if arguments.follow else _EVENTS, make=event)
    return JsonLinesSource(
        arguments.required_input(), include=arguments.include, follow=arguments.follow
    )


def event(number: int) -> Row:
    """The made-up event of a number: users come, stay for some time and go."""
    chance = zlib.crc32(number.to_bytes(8, "big"))
    minute = number // 1_500
    return Row(
        user=f"user-{minute * 100 + chance % 400}",
        time_ms=_START_MS + number * 40 - chance // 400 % MAX_DELAY_MS,
        page=f"/page/{chance % 97}",
    )
