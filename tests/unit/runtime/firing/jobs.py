"""Jobs whose timers fire by the dozen while records wait: one operator of each kind."""

from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import Any, NamedTuple

import pytest

from tests.support.clock import VirtualClock
from tests.support.pipelines import Outside
from tests.support.pressure import Eager, pressed, slowly, under_pressure
from tidelog import (
    CheckpointConfig,
    Job,
    JobConfig,
    OutputTag,
    Session,
    Sliding,
    StatefulProcessor,
    Tumbling,
)
from tidelog.runtime.graph import KeyedStream, Stream
from tidelog.storage.memory import MemoryStore

RECORD, FIRED = "record", "fired"
Event = tuple[str, Any]
KEYS = 9
DELAY_MS = 6
LATE = OutputTag("late")


EVENTS: list[Event] = []
"""What operators did, in order: records they got, and times of what has fired."""


class Reading(NamedTuple):
    side: str
    key: str
    number: int
    time: int


def readings(side: str, seed: str, count: int = 160) -> list[Reading]:
    """Many come a little later than others of a greater time; some of a few keys come too late."""
    chance = Random(side + seed)

    def time_of(number: int) -> int:
        pause = 60 * (number // 40)  # sessions end
        return (
            3 * number + pause - chance.choice([0, 0, chance.randrange(24), 40 * (number % 9 == 8)])
        )

    return [Reading(side, f"k{chance.randrange(KEYS)}", n, time_of(n)) for n in range(count)]


class Reminders(StatefulProcessor):
    """Says at the end of each twenty milliseconds what came since the last time it did."""

    def init(self, handle: Any) -> None:
        self._handle = handle
        self._numbers = handle.getListState("numbers", "number long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        due = [t for t in self._handle.listTimers() if t <= timerValues.getCurrentWatermarkInMs()]
        assert not due, f"timers of {key} have not fired before its next rows"
        for row in rows:
            EVENTS.append((RECORD, row.number))
            self._numbers.appendValue((row.number,))
            self._handle.registerTimer(row.time + 20 - row.time % 20)
            yield key[0], "row", row.number

    def handleExpiredTimer(self, key: Any, timerValues: Any, expired: Any) -> Iterator[Any]:
        numbers = [number for (number,) in self._numbers.get()]
        self._numbers.clear()
        yield key[0], expired.getExpiryTimeInMs(), numbers


class Clockwork(StatefulProcessor):
    """Says every ninety milliseconds how many rows there were, by timers that each register the
    next one."""

    def init(self, handle: Any) -> None:
        self._handle = handle
        self._count = handle.getValueState("count", "n long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        (count,) = self._count.get() or (0,)
        if not count:
            self._handle.registerTimer(-200 + 90 * (-(-(next(iter(rows)).time + 200) // 90) + 1))
            count += 1
        self._count.update((count + len([*rows]),))
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expired: Any) -> Iterator[Any]:
        time = expired.getExpiryTimeInMs()
        if timerValues.getCurrentWatermarkInMs() < 600:
            self._handle.registerTimer(time + 90)
        yield key[0], time, self._count.get()


def clockwork(left: KeyedStream, _: KeyedStream) -> Stream:
    return left.transform_with_state(Clockwork, time_mode="event", late=LATE)


def windowed(windows: Any, reduced: Callable[[Any], Stream], **firing: Any) -> Any:
    return lambda left, _: reduced(left.window(windows, late=LATE, **firing))


def numbers(windows: Any) -> Stream:
    """(key, start, ..., numbers in order) of each window."""
    return windows.records(lambda *window: (*window[:-1], [r.number for r in window[-1]]))


def total(windows: Any) -> Stream:
    def value_of(record: Reading) -> int:
        EVENTS.append((RECORD, record.number))
        return record.number

    return windows.aggregate(value_of, lambda before, number: before + number)


def joined(**span: Any) -> Any:
    return lambda left, right: left.join(right, late=LATE, **span)


def reminded(left: KeyedStream, _: KeyedStream) -> Stream:
    return left.transform_with_state(Reminders, time_mode="event", late=LATE)


def newest(left: KeyedStream, right: KeyedStream) -> Stream:
    return left.enrich(right, lambda record, row: (record, row), late=LATE)


KINDS: dict[str, Callable[[KeyedStream, KeyedStream], Stream]] = {
    "tumbling": windowed(Tumbling(20), total),
    "tumbling records": windowed(Tumbling(20), numbers),
    "sliding": windowed(Sliding(20, 5), total),
    "sliding records": windowed(Sliding(20, 8), numbers),
    "allowed lateness": windowed(Tumbling(20), total, allowed_lateness=9),
    "sliding, allowed lateness": windowed(Sliding(20, 5), numbers, allowed_lateness=9),
    "updates": windowed(Sliding(20, 5), total, emit="updates"),
    "sessions": windowed(Session(15), total),
    "session records": windowed(Session(15), numbers),
    "sessions, allowed lateness": windowed(Session(15), total, allowed_lateness=9),
    "timers": reminded,
    "timers that register the next one": clockwork,
    "inner join": joined(within=(-7, 12), how="inner"),
    "left join": joined(within=(-7, 12), how="left"),
    "outer join": joined(window=Tumbling(20), how="outer"),
    "newest row": newest,
}


def job(kind: str, sink: Outside, clock: VirtualClock, *, late: bool, seed: str = "1") -> Job:
    """Timers fire slowly. Emits (key, ...), of late records (key, "late", record).

    Without these what is slow is a part of the task whose timers fire, and else a task after it.
    """
    made = Job("firing")
    left, right = (
        made.source(Eager({name: inputs(kind, late=late, seed=seed)[name]}, 3), name=name)
        .event_time(lambda r: r.time, max_delay_ms=DELAY_MS)
        .key_by(lambda r: r.key)
        for name in ("left", "right")
    )
    result = KINDS[kind](left, right)
    main = slowly(result.map(fired), clock, 0.05)
    if late:
        main = main.union(result.side_output(LATE).map(lambda r: (r.key, "late", r)))
    main.sink(sink)
    return made


def inputs(kind: str, *, late: bool, seed: str = "1") -> dict[str, list[Reading]]:
    """Rows of a table are in order, or what is the newest would depend on what was read first;
    without a stream of late records those of joins are, too.
    """
    left, right = readings("left", seed), readings("right", seed)
    for side in (left, right) if kind.endswith("join") and not late else (right,):
        side.sort(key=lambda r: (r.time, r.number))
    return {"left": left, "right": right}


def fired(record: Any) -> Any:
    """A record of the result, a pair with its key first."""
    reading = next((each for each in record if isinstance(each, Reading)), None)
    if reading is not None:
        return reading.key, *record
    if record[1] != "row":
        EVENTS.append((FIRED, record[1]))
    return record


def settings(parallelism: int = 1, **changes: Any) -> JobConfig:
    """Checkpoints all the time, whose barriers overtake nothing."""
    schedule = CheckpointConfig(interval=0.1, timeout=1e6, tolerable_failures=0)
    return pressed("off", checkpoint=schedule, parallelism=parallelism, **changes)


def in_steps(monkeypatch: pytest.MonkeyPatch, timers: int) -> None:
    """So many timers fire without a pause."""
    operators = "tidelog.runtime.operators"
    for module in ("window", "tumbling_window", "session_window", "process"):
        monkeypatch.setattr(f"{operators}.{module}.TIMERS_PER_STEP", timers)
    for module in (f"{operators}.join", f"{operators}.enrich", "tidelog.state.timed_records"):
        monkeypatch.setattr(f"{module}.STEP", timers)
    sessions = f"{operators}.session_window.AggregateSessions.keys_at_once"
    monkeypatch.setattr(sessions, min(256, timers))


def run(kind: str, chosen: JobConfig, **options: Any) -> tuple[Outside, MemoryStore]:
    return under_pressure(partial(job, kind, **options), chosen)


def by_key(sink: Outside) -> dict[str, list[Any]]:
    """What is outside of each key, in order; late records are a stream of their own."""
    records: dict[str, list[Any]] = {}
    for record in sink.records:
        stream = "late" if record[1] == "late" else "main"
        records.setdefault(f"{record[0]} {stream}", []).append(record)
    return records
