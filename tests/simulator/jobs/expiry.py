"""Visits from endless sources: state that expires and sessions that processing time ends.

Invariant: each record is judged where it is handled, against state without a time to live, so what
must be written does not depend on when records are read.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf
from random import Random
from typing import Any, Final

from tests.simulator.jobs.job_plan import JobPlan
from tests.simulator.jobs.source import Arrivals, Arriving
from tests.simulator.machine.process import EPOCH_MS
from tidelog.runtime.graph import Job
from tidelog.runtime.sink import Sink
from tidelog.state.processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)
from tidelog.state.schema.row import Row

_STREAM_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class ExpiryPlan(JobPlan):
    """Rows of visitors, over state with a time to live and over timers."""

    visits: dict[str, Arriving]
    portion: int
    pause: float
    parallelism: int
    ttl_ms: int
    gap_ms: int

    def job(self, now: Callable[[], float], sink: Callable[[str], Sink]) -> Job:
        job = Job("visits", record_types=(Row,))
        visits = job.source(Arrivals(self.visits, self.portion, self.pause, now, blocking=False))
        by_visitor = visits.key_by(_visitor)
        by_visitor.transform_with_state(
            lambda: Remembering(self.ttl_ms, now), time_mode="processing", name="remembering"
        ).sink(sink("remembered"), name="remembered")
        by_visitor.transform_with_state(
            lambda: Sessions(self.gap_ms), time_mode="processing", name="sessions"
        ).sink(sink("sessions"), name="sessions-out")
        return job

    def expected(self) -> dict[str, Counter[Any]]:
        visits = [row for split in self.visits.values() for row in split.records]
        once = Counter((row.visitor, row.number, True) for row in visits)
        return {"remembered": once, "sessions": Counter(once)}

    def describe(self) -> str:
        return (
            f"parallelism {self.parallelism}; {len(self.visits)} endless splits; ttl "
            f"{self.ttl_ms} ms, sessions end after {self.gap_ms} ms"
        )


class Remembering(StatefulProcessor):
    """Says of each row whether every state holds just what was written within the time to live."""

    def __init__(self, ttl_ms: int, now: Callable[[], float]) -> None:
        self._ttl_ms = ttl_ms
        self._now = now

    def init(self, handle: StatefulProcessorHandle) -> None:
        ttl = self._ttl_ms
        self._last = handle.getValueState("last", "number long", ttl)
        self._recent = handle.getListState("recent", "number long", ttl)
        self._pages = handle.getMapState("pages", "page string", "number long", ttl)
        self._run = handle.getReducingState("run", "length long", _plus, ttl)
        self._all = handle.getListState("all", "number long, page string, written long")

    def handleInputRows(
        self, key: tuple[Any, ...], rows: Iterator[Any], timerValues: TimerValues
    ) -> Iterator[Any]:
        for row in rows:
            # The time of the timer values may be past when a row comes to its turn.
            now = EPOCH_MS + int(self._now() * 1000)
            yield key[0], row.number, self._found() == self._wanted(now)
            self._last.update((row.number,))
            self._recent.appendValue((row.number,))
            self._pages.updateValue((row.page,), (row.number,))
            self._run.add((1,))
            self._all.appendValue((row.number, row.page, now))

    def _found(self) -> tuple[Any, ...]:
        recent = [number for (number,) in self._recent.get()]
        pages = {page: number for (page,), (number,) in self._pages.iterator()}
        return self._last.get(), recent, pages, self._run.get()

    def _wanted(self, now: int) -> tuple[Any, ...]:
        last, recent, pages, run = None, [], {}, 0
        written_before = -self._ttl_ms
        for number, page, written in self._all.get():
            run = 1 + (run if written < written_before + self._ttl_ms else 0)
            written_before = written
            if now < written + self._ttl_ms:
                last = (number,)
                recent.append(number)
                pages[page] = number
        return last, recent, pages, (run,) if last else None


class Sessions(StatefulProcessor):
    """Emits the rows of a visitor who did nothing for a while: their timer is put off each time."""

    def __init__(self, gap_ms: int) -> None:
        self._gap_ms = gap_ms

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._open = handle.getListState("open", "number long")
        self._ends = handle.getValueState("ends", "at long")

    def handleInputRows(
        self, key: tuple[Any, ...], rows: Iterator[Any], timerValues: TimerValues
    ) -> Iterator[Any]:
        self._open.appendList([(row.number,) for row in rows])
        before = self._ends.get()
        if before is not None:
            self._handle.deleteTimer(before[0])
        at = timerValues.getCurrentProcessingTimeInMs() + self._gap_ms
        self._handle.registerTimer(at)
        self._ends.update((at,))
        return iter(())

    def handleExpiredTimer(
        self, key: tuple[Any, ...], timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[Any]:
        at = expiredTimerInfo.getExpiryTimeInMs()
        in_time = at <= timerValues.getCurrentProcessingTimeInMs()
        right = in_time and self._ends.get() == (at,) and list(self._handle.listTimers()) == [at]
        numbers = [number for (number,) in self._open.get()]
        self._open.clear()
        self._ends.clear()
        for number in numbers:
            yield key[0], number, right


def visits(rng: Random) -> ExpiryPlan:
    """A random job of this kind."""
    splits = {}
    for at in range(rng.choice((1, 2, 3))):
        length = rng.choice((5, 20, 40))
        pause = rng.choice((0.0, _STREAM_S / length, _STREAM_S / length))
        rows = tuple(_visit(rng, 10_000 * at + n) for n in range(length))
        splits[f"split-{at}"] = Arriving(rows, tuple(n * pause for n in range(length)), inf)
    return ExpiryPlan(
        splits,
        portion=rng.choice((2, 10)),
        pause=rng.choice((0.1, 0.3)),
        parallelism=rng.choice((1, 2, 3)),
        ttl_ms=rng.choice((100, 700, 3000)),
        gap_ms=rng.choice((150, 600, 2000)),
    )


def _visit(rng: Random, number: int) -> Row:
    return Row(
        visitor=f"v{rng.randrange(6)}",
        page=f"page-{rng.randrange(4)}",
        number=number,
    )


def _visitor(row: Row) -> str:
    visitor: str = row.visitor
    return visitor


def _plus(left: tuple[int], right: tuple[int]) -> tuple[int]:
    return (left[0] + right[0],)
