"""Event times before 1970 are times like all others."""

from collections.abc import Iterator
from typing import Any

from tests.support.pipelines import Outside, run
from tidelog import Job, Replayable, StatefulProcessor
from tidelog.storage.memory import MemoryStore

DAY_MS = 86_400_000


def test_windows_before_1970_count_every_record() -> None:
    times = [day * DAY_MS // 2 for day in range(-9, 4)]
    sink, job = Outside(), Job("old")
    timed = job.source(Replayable(times)).event_time(lambda time: time)
    days = timed.key_by(lambda _: "all").window(
        DAY_MS, value_of=lambda _: 1, combine=lambda a, b: a + b
    )
    days.sink(sink)
    run(job, MemoryStore())
    assert sorted(start for _, start, _ in sink.records) == [d * DAY_MS for d in range(-5, 2)]
    assert sum(count for _, _, count in sink.records) == len(times)


class Reminder(StatefulProcessor):
    """A timer two seconds after every row; says when it fires and what the watermark is then."""

    def init(self, handle: Any) -> None:
        self.handle = handle

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        for row in rows:
            self.handle.registerTimer(row + 2_000)
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, info: Any) -> Iterator[Any]:
        yield info.getExpiryTimeInMs()


def test_timers_at_negative_times_fire_once_and_in_their_order() -> None:
    times = list(range(-20_000, 10_000, 1_000))
    sink, job = Outside(), Job("timers")
    timed = job.source(Replayable(times)).event_time(lambda time: time)
    timed.key_by(lambda _: "all").transform_with_state(Reminder, time_mode="event").sink(sink)
    run(job, MemoryStore())
    assert sink.records == [time + 2_000 for time in times]
