"""What was stored one way is restored any other way, by value, and the job goes on from there.

A cell: changelog on or off before and after, a checkpoint, a native or a canonical savepoint,
claimed or not, the same, more or fewer subtasks, tables in memory or in RocksDB before and after.
Each job has a state of every kind and emits all that they say with every record; broken off,
restored, broken off and restored again, its output is that of a job nobody disturbed.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import product
from typing import Any, Literal, NamedTuple

import pytest

from tests.support.depth import combined, more_in_depth
from tests.support.harness import assert_nothing_is_left_over
from tests.support.pipelines import Outside, Portions, acted_on, config, run
from tidelog import (
    ExpiredTimerInfo,
    Job,
    JobRunner,
    RestoreFrom,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)
from tidelog.catalog.inventory import find_checkpoint
from tidelog.ids import Slot
from tidelog.storage.memory import MemoryStore

Stored = Literal["checkpoint", "native", "canonical"]
LENGTH = 16
HOUR_MS = 3_600_000


class Everything(StatefulProcessor):
    """A state of every kind per key; every record changes all of them and emits what they say."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.value = handle.getValueState("value", "n int, text string")
        self.array = handle.getValueState("array", "seen array<int>")
        self.list = handle.getListState("list", "n int")
        self.map = handle.getMapState("map", "slot int", "n int")
        self.most = handle.getReducingState("most", "n int", lambda a, b: (max(a[0], b[0]),))
        self.mean = handle.getAggregatingState(
            "mean",
            "sum int, count int",
            create=lambda: (0, 0),
            add=lambda row, n: (row[0] + n, row[1] + 1),
            result=lambda row: row[0] / row[1],
        )
        self.ttl_value = handle.getValueState("ttl-value", "n int", HOUR_MS)
        self.ttl_list = handle.getListState("ttl-list", "n int", HOUR_MS)
        self.ttl_map = handle.getMapState("ttl-map", "slot int", "n int", HOUR_MS)

    def handleInputRows(
        self, key: tuple[Any, ...], rows: Iterator[Any], timerValues: TimerValues
    ) -> Iterator[Any]:
        for _, n in rows:
            self._change(n)
            yield (key, n, self._said())

    def handleExpiredTimer(
        self, key: tuple[Any, ...], timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[Any]:
        yield (key, "timer", expiredTimerInfo.getExpiryTimeInMs(), self._said())

    def _change(self, n: int) -> None:
        before = self.array.get()
        self.value.update((n, f"text {n}"))
        self.array.update(([*(before[0] if before else []), n],))
        self.list.appendValue((n,))
        self.map.updateValue((n % 3,), (n,))
        self.most.add(((n * 7) % 10,))
        self.mean.add(n)
        self.ttl_value.update((n,))
        self.ttl_list.appendList([(n,), (-n,)])
        self.ttl_map.updateValue((n % 2,), (n,))
        if n % 4 == 0:
            self.map.removeKey((0,))
            self.list.clear()
        self.handle.registerTimer(1000 + n)
        self.handle.deleteTimer(1000 + n - 2)

    def _said(self) -> str:
        return repr(
            (
                self.value.get(),
                self.array.get(),
                list(self.list.get()),
                list(self.map.iterator()),
                self.most.get(),
                self.mean.get(),
                self.ttl_value.get(),
                list(self.ttl_list.get()),
                list(self.ttl_map.iterator()),
                list(self.handle.listTimers()),
            )
        )


def source() -> Portions:
    """Every key lies in one split, so the order of its records is the same in every shape."""
    splits = {f"s{s}": [(f"k{s}{n % 3}", n) for n in range(LENGTH)] for s in range(4)}
    return Portions(splits, portion=2)


def job(sink: Outside) -> Job:
    everything = Job("everything")
    # No timer is due before the end of the data.
    timed = everything.source(source()).event_time(lambda _: 0)
    keyed = timed.key_by(lambda record: record[0])
    keyed.transform_with_state(Everything, time_mode="event").sink(sink)
    return everything


class Cell(NamedTuple):
    """How a job ran before and after, and what lies between."""

    stored: Stored
    claim: bool
    parallelism: int
    changelog: tuple[bool, bool]
    tables: tuple[str, str]

    def __str__(self) -> str:
        shape = {2: "same", 3: "more", 1: "fewer"}[self.parallelism]
        logs = "-".join("on" if on else "off" for on in self.changelog)
        claim = "claim" if self.claim else "no-claim"
        return f"{self.stored} {claim} {shape} {logs} {'-'.join(self.tables)}"


KINDS: tuple[Stored, ...] = ("checkpoint", "native", "canonical")
CLAIMS = (True, False)
SHAPES = (2, 3, 1)
TABLES = tuple(product(("memory", "rocksdb"), repeat=2))
CELLS = [
    Cell(stored, claim, parallelism, (parallelism != 3, claim), tables)
    for stored, claim, parallelism, tables in combined(KINDS, CLAIMS, SHAPES, TABLES, meeting=2)
]
IN_MEMORY = [
    Cell(stored, claim, parallelism, (before, after), ("memory", "memory"))
    for stored, claim, parallelism, before, after in product(
        KINDS, CLAIMS, SHAPES, (True, False), (True, False)
    )
]
"""What a changelog before and after has to do with all else, for deep runs."""


@cache
def undisturbed() -> Counter[Any]:
    sink = Outside()
    run(job(sink), MemoryStore(), config())
    assert len(sink.records) > 4 * LENGTH, "timers fired too"
    return Counter(sink.records)


def through(cell: Cell, store: MemoryStore, sink: Outside) -> None:
    """Before, between, after, and once more in the shape from before."""
    before = {"changelog": cell.changelog[0], "table": cell.tables[0], "parallelism": 2}
    after = {"changelog": cell.changelog[1], "table": cell.tables[1]}
    stop = None if cell.stored == "checkpoint" else cell.stored

    async def stopped(runner: JobRunner) -> None:
        if stop is not None:
            await runner.stop("mine", format=stop)

    acted_on(job(sink), store, stopped, at=12.3, settings=config(**before), crash=stop is None)
    place = newest_slot(store)
    chosen = RestoreFrom("mine" if stop else place, claim=cell.claim)
    settings = config(parallelism=cell.parallelism, **after)
    acted_on(job(sink), store, at=12.7, settings=settings, crash=True, restore_from=chosen)
    assert newest_slot(store) > place, "the job has taken checkpoints of its own"
    run(job(sink), store, config(**before))


def newest_slot(store: MemoryStore) -> Slot:
    return asyncio.run(find_checkpoint(store, None)).slot


@pytest.mark.parametrize("cell", dict.fromkeys(CELLS + more_in_depth([], IN_MEMORY)), ids=str)
def test_whatever_is_restored_into_whatever_the_output_is_that_of_an_undisturbed_job(
    cell: Cell,
) -> None:
    store, sink = MemoryStore(), Outside()
    through(cell, store, sink)
    assert Counter(sink.records) == undisturbed()
    assert sink.prepared == {}
    assert_nothing_is_left_over(store)
