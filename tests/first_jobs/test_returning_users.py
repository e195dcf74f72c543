"""A `StatefulProcessor` with a state for ever, one with a time to live, and a timer."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
