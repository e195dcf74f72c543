"""What a record costs each operator with state as what is there grows: 1, 4 and 16 times as much.

    python benchmarks/growth.py
    python benchmarks/growth.py --only join --json

An operator is filled with so many keys, rows of a key, open windows or timers. Then as many records
come again, or some thousands, and the watermark follows them, so that as much ends as comes: the
figure is processor time of each of these with its share of firing, flushes and upkeep, the least
of several runs. It should grow with the logarithm at most: above a limit between 1 and 16 times the
program ends with 1. The table is RocksDB's; its own threads are not counted. It takes ten minutes.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable
from operator import add, itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from tidelog import StatefulProcessor, StatefulProcessorHandle
from tidelog.effects import SystemClock
from tidelog.runtime.channels.messages import Batch
from tidelog.runtime.channels.partition import ByKey
from tidelog.runtime.operators.aggregate import Aggregate
from tidelog.runtime.operators.deduplicate import Deduplicate
from tidelog.runtime.operators.enrich import EnrichAtTime
from tidelog.runtime.operators.join import Join
from tidelog.runtime.operators.operator import Operator, OperatorContext
from tidelog.runtime.operators.order import Greatest
from tidelog.runtime.operators.process import Process
from tidelog.runtime.operators.session_window import AggregateSessions
from tidelog.runtime.operators.spans import ONCE, Firing, Interval, WindowSpan
from tidelog.runtime.operators.tumbling_window import aggregate_window
from tidelog.runtime.operators.window import RecordsWindow
from tidelog.state.backend import KeyedBackend
from tidelog.state.key_groups import range_of
from tidelog.state.log import NoLog
from tidelog.state.registry import StateRegistry
from tidelog.table.rocksdb_factory import RocksTableFactory

TIMES = (1, 4, 16)
BASE = 4_000
MEASURED = 4_096
"""Records that are measured at least; where more is there as many, so that all of it ends once."""
BUFFER = 512
RUNS = 3
LIMIT = 2.0
"""Of the costs at 16 and at 1. A binary search takes a third more steps; caches miss more often."""
GROUPS = 8
EVENLY = 1_000_003
"""A prime: multiples of it, modulo what is there, are in no order."""


class Record(NamedTuple):
    key: int
    time: int
    value: float
    side: int = 0


class Case(NamedTuple):
    """An operator and its records, of which there are as many more as one wants."""

    operator: Callable[[int], Operator]
    record: Callable[[int, int], Record]
    """The record of a number where there are so many others; none is earlier than its number times
    `pace`, which is where the watermark follows."""
    fill: int = 1
    """Records for each thing that is to be there."""
    base: int = BASE
    """What is there at 1."""
    limit: float = LIMIT
    pace: int = 1
    """Milliseconds of event time between two records."""


class Waits(StatefulProcessor):
    """Timers of one key: each record registers one and deletes another."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterable[Any]:
        for row in rows:
            self.handle.registerTimer(row.time)
            self.handle.deleteTimer(row.time + 50)
        return ()


class Maps(StatefulProcessor):
    """A map of one key, of which each record changes an entry."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.map = handle.getMapState("map", "id int", "n int")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterable[Any]:
        for row in rows:
            self.map.updateValue((row.value,), (row.time,))
        return ()


def every_key(number: int, there: int) -> Record:
    """Each of so many keys in turn."""
    return Record(number % there, number, number)


def in_no_order(number: int, there: int) -> Record:
    """One key, with times in no order, which advance: so many are ahead of the watermark."""
    late = number * EVENLY % there
    return Record(0, number + late, late, number % 2)


def paused(number: int, there: int) -> Record:
    """The same with pauses in between."""
    record = in_no_order(number, there)
    return record._replace(time=record.time * PAUSE)


def with_a_far_one(number: int, there: int) -> Record:
    """Records of some keys in order, and one far from all of them."""
    return Record(number % 50, 10**12 if number == 0 else number, number)


def of_two_streams(number: int, there: int) -> Record:
    """Each of so many keys in turn, once in each stream."""
    return Record(number // 2 % there, number, number, number % 2)


def far_apart(number: int, there: int) -> Record:
    """One key, of which no two records of the two streams are near each other."""
    record = in_no_order(number, there)
    return record._replace(time=record.time + (10**7 if number % 2 else 0))


def sums(span: WindowSpan, firing: Firing = ONCE) -> Operator:
    return aggregate_window(span, itemgetter(2), add, firing)


def value(record: Record) -> float:
    return record.value


def event_time(record: Record) -> int:
    return record.time


PAUSE = 30
UPDATES = Firing(updates=True)
CASES: dict[str, Case] = {
    "sum: keys": Case(lambda _: Aggregate(value, add), every_key),
    "top(n): n": Case(
        lambda n: Aggregate(lambda r: [r], Greatest(n, event_time).merged),
        in_no_order,
        fill=2,
        base=1_000,
        limit=16.0,  # the list is one value, which every flush writes as a whole
    ),
    "tumbling: keys": Case(lambda n: sums(WindowSpan(n, n)), every_key),
    "tumbling: open windows": Case(lambda _: sums(WindowSpan(1, 1)), in_no_order),
    "tumbling: one far ahead": Case(lambda _: sums(WindowSpan(10, 10)), with_a_far_one),
    "sliding: open windows": Case(lambda _: sums(WindowSpan(2, 1)), in_no_order),
    "sliding: windows of a record": Case(
        lambda n: sums(WindowSpan(n, 4)),
        in_no_order,
        base=400,
        limit=20.0,  # a window that fires combines all its slices
    ),
    "tumbling, updates: keys": Case(lambda n: sums(WindowSpan(n, n), UPDATES), every_key),
    "records: rows of a window": Case(
        lambda n: RecordsWindow(WindowSpan(n, n), lambda *each: each), in_no_order
    ),
    "sessions: keys": Case(lambda n: AggregateSessions(n // 2, value, add, ONCE), every_key),
    "sessions: open sessions": Case(
        lambda _: AggregateSessions(PAUSE // 2, value, add, ONCE), paused, pace=PAUSE
    ),
    "deduplicate: ids of a key": Case(lambda _: Deduplicate(itemgetter(1), 10**9), in_no_order),
    "join: keys": Case(lambda n: Join(Interval(-n // 2, n // 2), "inner"), of_two_streams, fill=2),
    "join: rows of a key": Case(lambda _: Join(Interval(-2, 2), "inner"), in_no_order),
    "outer join: rows of a key": Case(lambda _: Join(Interval(-2, 2), "outer"), in_no_order),
    "join: rows of a key and bucket": Case(
        lambda n: Join(Interval(0, 4 * n), "inner"), far_apart, fill=4
    ),
    "enrich: rows of a key": Case(lambda _: EnrichAtTime(lambda *pair: pair), in_no_order),
    "map: entries of a key": Case(lambda _: Process(Maps(), "none"), in_no_order),
    "timers: timers of a key": Case(lambda _: Process(Waits(), "event"), in_no_order),
}


class Bench:
    """An operator with its state, in a directory."""

    def __init__(self, case: Case, there: int, directory: Path) -> None:
        self._case, self._there = case, there
        clock = SystemClock()
        self.backend = KeyedBackend(
            StateRegistry("growth"),
            GROUPS,
            range_of(0, GROUPS, 1),
            RocksTableFactory().create(directory),
            NoLog(),
            clock.now_ms,
            float,  # a clock that stands still
        )
        self._operator = case.operator(there)
        self._operator.open(OperatorContext(clock, self.backend))

    def cost_us(self, first: int, end: int) -> float:
        """Microseconds of processor time for each record of these numbers."""
        buffers = [
            (number, self._routed(number, min(number + BUFFER, end)))
            for number in range(first, end, BUFFER)
        ]
        started = time.thread_time()
        for number, of_sides in buffers:
            for routed in of_sides:
                consume(self._operator.process(routed))
            consume(self.backend.maintain())
            self.backend.flush_due()
            consume(self._operator.watermark((number + BUFFER) * self._case.pace - 1))
            # After each, or there would be fewer windows that have no row, the more there are.
            consume(self.backend.flush_in_steps())
        return (time.thread_time() - started) / (end - first) * 1e6

    def _routed(self, first: int, end: int) -> list[Any]:
        records = [self._case.record(number, self._there) for number in range(first, end)]
        routed = []
        for side in (0, 1):
            if some := [record for record in records if record.side == side]:
                route = ByKey(itemgetter(0), 1, GROUPS, side=side).route
                ((_, batch),) = route(Batch(some, [record.time for record in some]))
                routed.append(batch)
        return routed

    def close(self) -> None:
        self._operator.close()
        self.backend.table.close()


def cost_us(case: Case, there: int) -> float:
    """Microseconds of processor time for each record where so much is there."""
    filled = case.fill * there
    with TemporaryDirectory(prefix="growth-") as directory:
        bench = Bench(case, there, Path(directory, "table"))
        bench.cost_us(0, filled)
        figure = bench.cost_us(filled, filled + max(MEASURED, there))
        bench.close()
    return figure


def consume(steps: Iterable[Any]) -> None:
    for _ in steps:
        pass


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    grown = []
    for name, case in CASES.items():
        if arguments.only not in name:
            continue
        costs = [min(cost_us(case, case.base * n) for _ in range(RUNS)) for n in TIMES]
        ratio = costs[-1] / costs[0]
        if ratio > case.limit:
            grown.append(name)
        if arguments.json:
            print(json.dumps({"case": name, "us": costs, "ratio": ratio}))
        else:
            figures = "".join(f"{cost:9.2f}" for cost in costs)
            print(f"{name:34}{figures} us{ratio:7.2f}{' <--' if ratio > case.limit else ''}")
        sys.stdout.flush()
    return 1 if grown else 0


if __name__ == "__main__":
    raise SystemExit(main())
