"""Windows with records that come too late: each window fires once, in any shape of the job, and
each record is in a window or late.

Most take their time to fire, so that checkpoints are taken amid a firing, with the late records in
flight behind it.

Invariant: a late record adds nothing, and comes after a record of its key and window that is on
time and after a mark that ends the window; so it can only be seen when a window fires twice. When
it comes to a window before its watermark, as in flight over a restart, it is not late.
"""

from collections.abc import Iterator
from random import Random
from typing import Any, Final

from tests.simulator.jobs.plan import Branch, Plan, SourcePlan
from tests.simulator.jobs.source import Arriving, Record
from tests.simulator.jobs.stages import EventTime, Windows
from tests.simulator.machine.process import work
from tidelog.runtime.graph import OutputTag, Stream
from tidelog.state.processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

_SIZE_MS: Final = 700
_DISORDER_MS: Final = _SIZE_MS // 2
_LATE: Final = 0
"""The value of a late record."""
_FIRING_S: Final = 0.06
"""How long a window that fires keeps its process busy: longer than a turn, so barriers pass."""
_ROUNDS: Final = 6
_KEYS: Final = 12


class FastWindows(Windows):
    """Sums of what is on time."""

    def evaluate(self, records: list[Any], parallelism: int) -> list[Any]:
        return super().evaluate([r for r in records if r.value != _LATE], parallelism)


class SlowWindows(FastWindows):
    """Windows of records, whose function takes its time."""

    def apply(self, stream: Stream) -> Stream:
        rows = stream.map(tuple).key_by(_key)
        return rows.window_records(self.size_ms, self.slide_ms, function=_summed)


class SlowTimers(FastWindows):
    """Windows by hand: a map of sums, and a timer at the end of each window."""

    def apply(self, stream: Stream) -> Stream:
        return stream.key_by(_key).transform_with_state(Sums, time_mode="event")


class Accounts(Windows):
    """Every record once: in its window, or late."""

    def apply(self, stream: Stream) -> Stream:
        late = OutputTag("late")
        rows = stream.map(tuple).key_by(_key)
        fired = rows.window_records(self.size_ms, self.slide_ms, function=_numbers, late=late)
        return fired.flat_map(list).union(fired.side_output(late).map(_number))

    def evaluate(self, records: list[Any], parallelism: int) -> list[Any]:
        return [record.number for record in records]


class Sums(StatefulProcessor):
    """Sums by key and window."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._sums = handle.getMapState("sums", "start bigint", "sum bigint")

    def handleInputRows(
        self, key: tuple[Any, ...], rows: Iterator[Any], timerValues: TimerValues
    ) -> Iterator[Any]:
        for row in rows:
            start = row.time - row.time % _SIZE_MS
            (before,) = self._sums.getValue((start,)) or (0,)
            self._sums.updateValue((start,), (before + row.value,))
            self._handle.registerTimer(start + _SIZE_MS - 1)
        return iter(())

    def handleExpiredTimer(
        self, key: tuple[Any, ...], timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[Any]:
        start = expiredTimerInfo.getExpiryTimeInMs() - _SIZE_MS + 1
        (total,) = self._sums.getValue((start,)) or (0,)
        self._sums.removeKey((start,))
        work(_FIRING_S)
        yield key[0], start, total


def latecomers(rng: Random) -> Plan:
    """A random job of one split."""
    portion = rng.choice((2, 5, 10))
    records = tuple(_rounds(rng, portion))
    seconds = rng.choice((0.0, 4.0 / len(records)))
    split = Arriving(records, tuple(n * seconds for n in range(len(records))))
    source = SourcePlan(
        "records",
        {"only": split},
        portion,
        0.03,
        (EventTime(_DISORDER_MS),),
        blocking=False,
        parallelism=1,
    )
    windows = rng.choice((FastWindows, SlowWindows, SlowWindows, SlowTimers, SlowTimers, Accounts))
    parallelism = rng.choice((2, 3, 4))
    # Half a size: what is late for a window is late for all that hold it.
    slides = windows in (FastWindows, SlowWindows) and rng.random() < 0.5
    slide = _SIZE_MS // 2 if slides else _SIZE_MS
    branch = Branch((windows(_SIZE_MS, slide),), "sums")
    return Plan((source,), (branch,), parallelism)


def _rounds(rng: Random, portion: int) -> list[Record]:
    """Records of a window, a mark that ends it, and late ones for it, round after round."""
    records: list[Record] = []

    def add(key: str, time: int, value: int) -> None:
        records.append(Record(key, len(records), value, time))

    for start in range(-2 * _SIZE_MS, (_ROUNDS - 2) * _SIZE_MS, _SIZE_MS):
        begun = len(records)
        for _ in range(rng.choice((5, 20))):
            time = start + 2 + rng.randrange(_DISORDER_MS - 4)
            add(f"k{rng.randrange(_KEYS)}", time, 1 + rng.randrange(9))
        # Whichever read the first mark is in, the last one is in another.
        for _ in range(portion + 1):
            add("mark", start + _SIZE_MS + _DISORDER_MS + 1, 1)
        for key in sorted({record.key for record in records[begun:]} - {"mark"}):
            add(key, start + rng.randrange(_DISORDER_MS), _LATE)
    return records


def _key(record: Any) -> str:
    key: str = record[0]
    return key


def _number(row: tuple[str, int, int, int]) -> int:
    return row[1]


def _numbers(key: str, start: int, rows: list[Any]) -> list[int]:
    work(_FIRING_S)
    return list(map(_number, rows))


def _summed(key: str, start: int, rows: list[Any]) -> tuple[str, int, int]:
    work(_FIRING_S)
    return key, start, sum(row[2] for row in rows)
