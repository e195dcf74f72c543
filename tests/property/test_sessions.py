"""Session windows against plain lists: however records, watermarks, flushes and restarts amid a
firing follow each other, with sessions in the row of a key and beyond it.
"""

from collections.abc import Callable
from typing import Any
from unittest import mock

import hypothesis.strategies as st
from hypothesis import given

from tests.property.profiles import looking
from tests.property.test_windows import Subject, firings, steps_of
from tidelog.runtime.operators.session_records import RecordsSessions
from tidelog.runtime.operators.session_window import AggregateSessions
from tidelog.runtime.operators.spans import Firing

Fired = tuple[str, int, int, list[int]]


class Open:
    """A session that is not over."""

    def __init__(self, start: int, last: int, numbers: list[int]) -> None:
        self.start, self.last, self.numbers = start, last, numbers


class Model:
    """What sessions are to do, record by record."""

    def __init__(self, gap: int, firing: Firing) -> None:
        self.gap, self.firing = gap, firing
        self.watermark = -(1 << 63)
        self.open: dict[str, list[Open]] = {}

    def end(self, last: int) -> int:
        return last + self.gap

    def fired(self, key: str, session: Open) -> Fired:
        return key, session.start, self.end(session.last), sorted(session.numbers)

    def add(self, records: list[list[Any]]) -> tuple[list[int], list[Fired]]:
        """The numbers of late records, and the sessions that fire."""
        late, changed = [], set[tuple[str, int]]()
        for number, key, time in records:
            sessions = self.open.setdefault(key, [])
            near = [s for s in sessions if s.start - self.gap <= time <= s.last + self.gap]
            if not near and self.end(time) + self.firing.lateness_ms <= self.watermark:
                late.append(number)
                continue
            changed.add((key, time))
            self.open[key] = [s for s in sessions if s not in near]
            numbers = [number, *(n for s in near for n in s.numbers)]
            start = min([time, *(s.start for s in near)])
            last = max([time, *(s.last for s in near)])
            self.open[key].append(Open(start, last, numbers))
        fired = [
            self.fired(key, session)
            for key, sessions in self.open.items()
            for session in sessions
            if any((key, time) in changed for time in range(session.start, session.last + 1))
            and (self.firing.updates or self.end(session.last) <= self.watermark)
        ]
        return late, fired

    def fire(self, watermark: int) -> list[Fired]:
        before, self.watermark = self.watermark, max(watermark, self.watermark)
        fired = [
            self.fired(key, session)
            for key, sessions in self.open.items()
            for session in sessions
            if before < self.end(session.last) <= self.watermark and not self.firing.updates
        ]
        for key, sessions in self.open.items():
            over = self.watermark - self.firing.lateness_ms
            self.open[key] = [s for s in sessions if self.end(s.last) > over]
        return fired


def sessions(kind: str, gap: int, firing: Firing) -> Callable[..., Any]:
    """What makes the operator."""
    if kind == "records":
        return lambda function: RecordsSessions(gap, function, firing)
    return lambda *functions: AggregateSessions(gap, *functions, firing)


def in_order(fired: list[Fired]) -> bool:
    """Whether the sessions of each key come in the order of time."""
    keys = {key for key, *_ in fired}
    starts = [[start for other, start, *_ in fired if other == key] for key in keys]
    return all(each == sorted(set(each)) for each in starts)


@looking(200, deep=25)
@given(
    st.sampled_from(["sums", "lists", "records"]),
    st.integers(1, 8),
    firings,
    st.integers(1, 3),
    steps_of("ab"),
)
def test_sessions_are_those_of_lists(
    kind: str, gap: int, firing: Firing, most_held: int, steps: list[Any]
) -> None:
    subject, model = Subject(kind, sessions(kind, gap, firing)), Model(gap, firing)
    operator = "tidelog.runtime.operators.session_window"
    with (
        mock.patch(f"{operator}.TIMERS_PER_STEP", 1),
        mock.patch(f"{operator}.AggregateSessions.keys_at_once", 2),
        mock.patch("tidelog.state.sessions.MAX_SESSIONS", most_held),
    ):
        for what, *values in steps:
            match what, values:
                case "records", [records]:
                    numbered = [[subject.count + n, *r] for n, r in enumerate(records)]
                    subject.count += len(numbered)
                    late, fired = subject.add(numbered)
                    wanted_late, wanted = model.add(numbered)
                    assert sorted(late) == wanted_late
                    assert sorted(fired) == sorted(wanted)
                case "watermark", [watermark, pauses, amid, looked]:
                    watermark = max(watermark, model.watermark)
                    fired = list(subject.fire(watermark, pauses, amid))
                    assert in_order(fired)
                    assert sorted(fired) == sorted(model.fire(watermark))
                    if looked:
                        rows = subject.rows()
                        live = sum(map(len, model.open.values()))
                        assert rows.get("sessions", 0) + rows.get("earlier-sessions", 0) <= live
                case _:
                    subject.amid(what)
    assert subject.rows() == {}
