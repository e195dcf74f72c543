"""Sessions of users around 1970, so with event times below zero."""

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from tests.first_jobs.programs import add_rows, rows_of, run
from tidelog import Files, Job, JsonLines, Row, StatefulProcessor

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
