"""Windows and timers fire once, whatever moment of a firing a checkpoint holds and a rescale
resumes from: records that come late for a key group stay late for whoever takes it over.
"""

from collections import Counter, defaultdict
from functools import partial
from typing import Any

import pytest

from tests.support.clock import VirtualClock
from tests.support.depth import more_in_depth, one_by_one
from tests.support.pipelines import Outside
from tests.support.pressure import Eager, checkpoints, pressed, resumed, slowly, under_pressure
from tidelog import Checkpoint, Job, JobConfig, Schedule, StatefulProcessor

KEYS = [f"k{n}" for n in range(more_in_depth(7, 16))]
SIZE_MS = 10
SLIDE_MS = 6
LATE = 1_000
"""What a late record adds: it counts for a window that has not fired, or not at all."""


def records(build: Any) -> list[tuple[str, int, int]]:
    """(key, time, value): windows that all fire at once, then records late for them, twice.

    Times begin below zero, as before 1970.
    """
    # Sliding windows are more, and fire in more steps.
    keys = KEYS[: more_in_depth(5, 9)] if build is sliding_sums else KEYS
    made: list[tuple[str, int, int]] = []
    for start in (-40, 0):
        made += [(key, start + 3 * n, n + 1) for n in range(6) for key in keys]
        made += [("mark", start + 25, 0)] * 4
        made += [(key, start + 1, LATE) for key in keys for _ in range(3)]
    return made


def expected(build: Any) -> dict[tuple[str, int], int]:
    """Sum of what is on time by key and start of the window."""
    slide_ms = SLIDE_MS if build is sliding_sums else SIZE_MS
    sums: dict[tuple[str, int], int] = defaultdict(int)
    for key, time, value in records(build):
        if value != LATE:
            for start in range(time - time % slide_ms, time - SIZE_MS, -slide_ms):
                sums[key, start] += value
    return dict(sums)


def window_sums(timed: Any) -> Any:
    return timed.window(SIZE_MS, value_of=lambda r: r[2], combine=lambda a, b: a + b)


def sliding_sums(timed: Any) -> Any:
    return timed.window(SIZE_MS, SLIDE_MS, value_of=lambda r: r[2], combine=lambda a, b: a + b)


class Sums(StatefulProcessor):
    """Windows by hand: a map of sums by start, and a timer at the end of each window."""

    def init(self, handle: Any) -> None:
        self._handle = handle
        self._sums = handle.getMapState("sums", "start bigint", "sum bigint")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        watermark = timerValues.getCurrentWatermarkInMs()
        for _, time, value in rows:
            start = time - time % SIZE_MS
            if watermark == -1 or start + SIZE_MS - 1 > watermark:
                before = self._sums.getValue((start,)) or (0,)
                self._sums.updateValue((start,), (before[0] + value,))
                self._handle.registerTimer(start + SIZE_MS - 1)
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Any:
        start = expiredTimerInfo.getExpiryTimeInMs() - SIZE_MS + 1
        total = self._sums.getValue((start,))
        self._sums.removeKey((start,))
        yield key[0], start, total[0]


def by_timers(timed: Any) -> Any:
    return timed.transform_with_state(Sums, time_mode="event")


BUILDS = [window_sums, sliding_sums, by_timers]


def job(build: Any, sink: Outside, clock: VirtualClock) -> Job:
    job = Job("windows")
    source = Eager({"only": records(build)}, portion=4)
    timed = job.source(source).event_time(lambda r: r[1])
    fired = build(timed.key_by(lambda r: r[0]))
    # Takes so long that a checkpoint passes between any two steps of a firing.
    slowly(fired.rebalance(), clock, 0.2).sink(sink)
    return job


def settings(parallelism: int, interval: float = 0.1) -> JobConfig:
    schedule = Schedule(interval=interval, timeout=1e6)
    return pressed(parallelism=parallelism, channel_buffers=8, checkpoint=schedule)


def check(sink: Outside, build: Any, what: str) -> None:
    fired = Counter((key, start) for key, start, _ in sink.records)
    assert [window for window, times in fired.items() if times > 1] == [], what
    assert {(key, start): value % LATE for key, start, value in sink.records} == expected(build), (
        what
    )


def firing(checkpoint: Checkpoint) -> set[tuple[int, int, int]]:
    """Subtasks that were amid a firing, each with how far it was."""
    return {
        (subtask.index, subtask.advancing, subtask.seqno)
        for _, subtask in checkpoint.subtasks()
        if subtask.advancing is not None
    }


@one_by_one(build=BUILDS, shapes={"3-1": (3, 1), "2-3": (2, 3), "1-2": (1, 2)})
def test_every_step_of_a_firing_is_resumed_in_another_shape(
    build: Any, shapes: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for operator in ("process", "window", "tumbling_window"):
        monkeypatch.setattr(f"tidelog.runtime.operators.{operator}.TIMERS_PER_STEP", 1)
    before, after = shapes
    steps: set[tuple[int, int, int]] = set()
    # A checkpoint takes two steps; the intervals make them fall between others.
    for interval in (0.1, 0.25):
        sink, objects = under_pressure(partial(job, build), settings(before, interval))
        check(sink, build, "without a restart")
        for checkpoint in checkpoints(objects):
            if firing(checkpoint) <= steps:
                continue
            steps |= firing(checkpoint)
            again = resumed(partial(job, build), objects, sink, checkpoint, settings(after))
            check(again, build, f"from slot {checkpoint.slot}: {firing(checkpoint)}")
    assert len(steps) >= more_in_depth(8, 16), "checkpoints amid four firings"
