"""What a record costs each operator with state as what is there grows: 1, 4 and 16 times as much.

    python benchmarks/growth.py
    python benchmarks/growth.py --only join --json

An operator is filled with so many keys, rows of a key, open windows or timers, and then given some
more records; the figure is processor time of each of these, the least of several runs. It should
grow with the logarithm at most: above a limit between 1 and 16 times the program ends with 1. The
table is in memory, so what the disk would cost is not in it. It takes two minutes.
"""

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from operator import add, itemgetter
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
from tidelog.table.memory import MemoryTable

TIMES = (1, 4, 16)
BASE = 4_000
MEASURED = 4_096
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
    """The record of a number where there are so many others."""
    fill: int = 1
    """Records for each thing that is to be there."""
    base: int = BASE
    """What is there at 1."""
    limit: float = LIMIT


class Waits(StatefulProcessor):
    """Timers of one key: each record registers one and deletes another."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterable[Any]:
        for row in rows:
            self.handle.registerTimer(row.time)
            self.handle.deleteTimer(row.time - 50)
        return ()


class Maps(StatefulProcessor):
    """A map of one key, of which each record changes an entry."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.map = handle.getMapState("map", "id int", "n int")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterable[Any]:
        for row in rows:
            self.map.updateValue((row.time,), (row.time,))
        return ()


def every_key(number: int, there: int) -> Record:
    """Each of so many keys in turn."""
    return Record(number % there, 1, number)


def in_no_order(number: int, there: int) -> Record:
    """One key, with times in no order."""
    return Record(0, number * EVENLY % there, number * EVENLY % there, number % 2)


def window_each(number: int, there: int) -> Record:
    """One key with so many windows that are open."""
    return Record(0, number * EVENLY % there * 100, number)


def with_a_far_one(number: int, there: int) -> Record:
    """Windows that open and end, and one record far from all of them."""
    return Record(number % 50, 10**12 if number == 0 else number * 10, number)


def sums(span: WindowSpan, firing: Firing = ONCE) -> Operator:
    return aggregate_window(span, itemgetter(2), add, firing)


def value(record: Record) -> float:
    return record.value


UPDATES = Firing(updates=True)
CASES: dict[str, Case] = {
    "sum: keys": Case(lambda _: Aggregate(value, add), every_key),
    "top(n): n": Case(
        lambda n: Aggregate(lambda r: [r], Greatest(n, value).merged),
        in_no_order,
        fill=2,
        base=1_000,
        limit=3.5,  # a place in a list is found by halves, but what is behind it moves by one
    ),
    "tumbling: keys": Case(lambda _: sums(WindowSpan(100, 100)), every_key),
    "tumbling: open windows": Case(lambda _: sums(WindowSpan(100, 100)), window_each),
    "tumbling: one far ahead": Case(lambda _: sums(WindowSpan(100, 100)), with_a_far_one),
    "sliding: open windows": Case(lambda _: sums(WindowSpan(200, 100)), window_each),
    "sliding: windows of a record": Case(lambda n: sums(WindowSpan(n, 4)), in_no_order),
    "tumbling, updates: keys": Case(lambda _: sums(WindowSpan(100, 100), UPDATES), every_key),
    "records: rows of a window": Case(
        lambda _: RecordsWindow(WindowSpan(10**9, 10**9), lambda *each: each), in_no_order
    ),
    "sessions: keys": Case(lambda _: AggregateSessions(10, value, add, ONCE), every_key),
    "sessions: open sessions": Case(lambda _: AggregateSessions(10, value, add, ONCE), window_each),
    "deduplicate: ids of a key": Case(lambda _: Deduplicate(itemgetter(1), 10**9), in_no_order),
    "join: keys": Case(
        lambda _: Join(Interval(-5, 5), "inner"),
        lambda number, there: Record(number // 2 % there, 1 + number, number, number % 2),
    ),
    "join: rows of a key": Case(lambda _: Join(Interval(-2, 2), "inner"), in_no_order),
    "outer join: rows of a key": Case(lambda _: Join(Interval(-2, 2), "outer"), in_no_order),
    "join: rows of a key and bucket": Case(
        lambda n: Join(Interval(0, 4 * n), "inner"),
        lambda number, there: Record(
            0, number * EVENLY % there + (10**6 if number % 2 else 0), number, number % 2
        ),
    ),
    "enrich: rows of a key": Case(lambda _: EnrichAtTime(lambda *pair: pair), in_no_order),
    "map: entries of a key": Case(lambda _: Process(Maps(), "none"), in_no_order),
    "timers: timers of a key": Case(
        lambda _: Process(Waits(), "event"),
        lambda number, there: Record(0, 1_000 + number * EVENLY % there, number),
    ),
}


def opened(operator: Operator) -> Operator:
    clock = SystemClock()
    backend = KeyedBackend(
        StateRegistry("growth"),
        GROUPS,
        range_of(0, GROUPS, 1),
        MemoryTable(),
        NoLog(),
        clock.now_ms,
        clock.monotonic,
    )
    operator.open(OperatorContext(clock, backend))
    return operator


def buffers(records: list[Record]) -> Iterator[Any]:
    for side in (0, 1):
        route = ByKey(itemgetter(0), 1, GROUPS, side=side).route
        mine = [record for record in records if record.side == side]
        for start in range(0, len(mine), BUFFER):
            some = mine[start : start + BUFFER]
            ((_, routed),) = route(Batch(some, [record.time for record in some]))
            yield routed


def cost_us(case: Case, there: int) -> float:
    """Microseconds of processor time for each record."""
    operator, filled = opened(case.operator(there)), case.fill * there
    for routed in buffers([case.record(number, there) for number in range(filled)]):
        consume(operator.process(routed))
    more = [case.record(number, there) for number in range(filled, filled + MEASURED)]
    random.Random(1).shuffle(more)
    given = list(buffers(more))
    started = time.thread_time()
    for routed in given:
        consume(operator.process(routed))
    return (time.thread_time() - started) / MEASURED * 1e6


def consume(batches: Iterable[Any]) -> None:
    for _ in batches:
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
