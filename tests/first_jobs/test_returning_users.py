"""A `StatefulProcessor` with a state for ever, one with a time to live, and a timer; sessions of
users around 1970, so with event times below zero.
"""

import time
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from tests.first_jobs.programs import add_rows, rows_of, run
from tidelog import Files, Job, JsonLines, Row, StatefulProcessor

HOUR = 3_600_000
USERS = [f"user-{n}" for n in range(30)]


class Returning(StatefulProcessor):
    """Says who is back, whether a moment ago or long ago, and who then stayed away."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.visits = handle.getValueState("visits", "count int")
        self.recent = handle.getValueState("recent", "time_ms bigint", ttlDurationMs=1)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        for row in rows:
            visits = (self.visits.get() or (0,))[0]
            back = "recently" if self.recent.exists() else "after a while"
            yield Row(user=key[0], what=f"visit {visits}, {back}")
            self.visits.update((visits + 1,))
            self.recent.update((row.time_ms,))
            for timer in list(self.handle.listTimers()):
                self.handle.deleteTimer(timer)
            self.handle.registerTimer(row.time_ms + HOUR)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Any:
        yield Row(user=key[0], what=f"away since {expiredTimerInfo.getExpiryTimeInMs() - HOUR}")


def test_one_state_expires_the_other_lasts_and_a_timer_fires_once(tmp_path: Path) -> None:
    seen: list[Row] = []

    def job(*, follow: bool) -> Job:
        job = Job("returning")
        visits = job.source(JsonLines(tmp_path / "visits", follow=follow))
        timed = visits.map(lambda row: seen.append(row) or row).event_time(lambda row: row.time_ms)
        states = timed.key_by(lambda row: row.user).transform_with_state(
            Returning, time_mode="event"
        )
        states.sink(Files(tmp_path / "out"))
        return job

    file = tmp_path / "visits" / "visits.jsonl"
    add_rows(file, [{"user": user, "time_ms": 1000 + n} for n, user in enumerate(USERS)])
    run(job(follow=True), tmp_path / "store", lambda: len(seen) == len(USERS), parallelism=2)
    time.sleep(0.01)  # ten times the time to live
    add_rows(file, [{"user": user, "time_ms": 2000 + n} for n, user in enumerate(USERS)])
    run(job(follow=False), tmp_path / "store", parallelism=2)
    found = sorted((row["user"], row["what"]) for row in rows_of(tmp_path / "out"))
    assert found == sorted(
        (user, what)
        for n, user in enumerate(USERS)
        for what in ("visit 0, after a while", "visit 1, after a while", f"away since {2000 + n}")
    )


GAP = 1_800_000
DELAY = 60_000
START = -40 * GAP


class Sessions(StatefulProcessor):
    """A session ends when its user has done nothing for half an hour."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.times = handle.getListState("times", "time_ms bigint")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        for row in rows:
            self.times.appendValue((row.time_ms,))
            self.handle.registerTimer(row.time_ms + GAP)
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Any:
        now = expiredTimerInfo.getExpiryTimeInMs()
        times = sorted(time for (time,) in self.times.get())
        ended = [time for time in times if time + GAP <= now]
        if not ended or any(ended[-1] < time < now for time in times):
            return
        self.times.clear()
        if still_open := times[len(ended) :]:
            self.times.put([(time,) for time in still_open])
        yield Row(user=key[0], start=ended[0], end=ended[-1], actions=len(ended))


def plain_sessions(actions: list[dict[str, Any]]) -> Iterator[tuple[Any, ...]]:
    by_user = sorted(actions, key=lambda row: (row["user"], row["time_ms"]))
    for user, rows in groupby(by_user, key=lambda row: row["user"]):
        times = [row["time_ms"] for row in rows]
        while times:
            length = 1
            while length < len(times) and times[length] < times[length - 1] + GAP:
                length += 1
            yield user, times[0], times[length - 1], length
            times = times[length:]


@pytest.mark.parametrize("parallelism", [1, 3])
def test_sessions_are_those_of_a_plain_computation(tmp_path: Path, parallelism: int) -> None:
    actions: list[dict[str, Any]] = []
    for number in range(3):
        times = [START + n * (GAP // 5) - (n % 3) * (DELAY // 3) for n in range(number, 400, 2)]
        users = [f"u{(n * n + number) % 13}" for n in range(len(times))]
        log = [{"user": u, "time_ms": t} for u, t in zip(users, times, strict=True)]
        add_rows(tmp_path / "in" / f"{number}.jsonl", log)
        actions += log
    assert min(a["time_ms"] for a in actions) < 0 < max(a["time_ms"] for a in actions)

    job = Job("sessions")
    (
        job.source(JsonLines(tmp_path / "in"))
        .event_time(lambda row: row.time_ms, max_delay_ms=DELAY)
        .key_by(lambda row: row.user)
        .transform_with_state(Sessions, time_mode="event")
        .sink(Files(tmp_path / "out"))
    )
    run(job, tmp_path / "store", parallelism=parallelism)
    found = sorted(tuple(row.values()) for row in rows_of(tmp_path / "out"))
    assert found == sorted(plain_sessions(actions))
