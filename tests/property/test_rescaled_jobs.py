"""Whatever the parallelism of a job was and becomes, its output is its input: no record is lost,
doubled or overtaken by one of the same key.

A job is broken off again and again, started with another number of subtasks each time, and at last
runs to its end.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from typing import Any

import pytest

from tests.support.depth import more_in_depth, one_by_one
from tests.support.harness import assert_nothing_is_left_over
from tests.support.pipelines import Outside, Portions, Within, config
from tests.support.pipelines import run as run_job
from tests.support.pressure import checkpoints
from tests.unit.verify.stores import report_on, verdicts
from tidelog.catalog.inventory import read_inventory
from tidelog.checkpoint.finding import Finding
from tidelog.errors import UserFunctionError
from tidelog.runtime.graph import Job
from tidelog.runtime.source import SplitReader
from tidelog.state.processor import StatefulProcessor, StatefulProcessorHandle, TimerValues
from tidelog.storage.memory import MemoryStore
from tidelog.verify.job.store import structural_findings

pytestmark = pytest.mark.usefixtures("workers")

GROUPS = 32
KEYS = 11
LENGTH = 24


class Breaking(Portions):
    """Breaks off when it has handed out that many portions, for all its splits together."""

    def __init__(self, splits: int, name: str) -> None:
        records = {
            f"{name}-{s}": [(f"k{(s + n * n) % KEYS}", f"{name}-{s}", n) for n in range(LENGTH)]
            for s in range(splits)
        }
        super().__init__(records, portion=2)
        self.left: int | None = None

    def open(self, split: str, position: Any) -> SplitReader:
        return _BreakingReader(self, super().open(split, position))


class _BreakingReader(Within):
    def __init__(self, source: Breaking, inner: SplitReader) -> None:
        super().__init__(inner)
        self._source = source

    def read(self) -> list[Any] | None:
        read = super().read()
        if read and self._source.left is not None:
            self._source.left -= 1
            if self._source.left < 0:
                raise UserFunctionError("the source", found="the break", action="start again")
        return read


class Numbering(StatefulProcessor):
    """Numbers the records of a key from 1 on, and keeps them all."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.seen = handle.getListState("seen", "split string, n long")

    def handleInputRows(
        self, key: tuple[Any, ...], rows: Iterator[Any], timerValues: TimerValues
    ) -> Iterator[Any]:
        for _, split, n in rows:
            self.seen.appendValue((split, n))
            yield (key, len(list(self.seen.get())), split, n)


Build = Callable[[Job, list[Breaking], Outside], None]


def keyed(job: Job, sources: list[Breaking], sink: Outside) -> None:
    for source in sources[1:]:
        source.splits = {}
    numbered = job.source(sources[0]).key_by(lambda record: record[0])
    numbered.transform_with_state(Numbering).sink(sink)


def union(job: Job, sources: list[Breaking], sink: Outside) -> None:
    left, right = job.source(sources[0], name="left"), job.source(sources[1], name="right")
    united = left.union(right.map(lambda record: record)).key_by(lambda record: record[0])
    united.transform_with_state(Numbering).sink(sink)


def one_sink(job: Job, sources: list[Breaking], sink: Outside) -> None:
    """The sink has one subtask, so it is chained to its input at parallelism 1 and never else."""
    left, right = job.source(sources[0], name="left"), job.source(sources[1], name="right")
    numbered = left.union(right).key_by(lambda record: record[0]).transform_with_state(Numbering)
    numbered.sink(sink, parallelism=1)


def one_reader(job: Job, sources: list[Breaking], sink: Outside) -> None:
    """The sources have one subtask each, and are chained to a map at parallelism 1 alone."""
    left = job.source(sources[0], name="left", parallelism=1).map(lambda record: record)
    right = job.source(sources[1], name="right", parallelism=1)
    united = left.union(right).key_by(lambda record: record[0])
    united.transform_with_state(Numbering).sink(sink)


SHAPES = {"up": [1, 2, 5], "down": [6, 3, 1], "same": [3, 3], "up and down": [2, 7, 4, 1, 3]}
BUILDS = [one_sink, union, keyed, one_reader]
"""In an order in which `one_by_one` lets one sink and one reader go through parallelism 1."""


def run_through(
    shapes: Sequence[int], build: Build, changelogs: Sequence[bool], **settings: Any
) -> tuple[list[Breaking], Outside, MemoryStore]:
    """Break the job off in every shape but the last, in which it ends."""
    sources, sink = [Breaking(3, "a"), Breaking(2, "b")], Outside()
    store = MemoryStore("memory://rescaled")
    switch = cycle(changelogs)
    for number, parallelism in enumerate(shapes):
        last = number == len(shapes) - 1
        for source in sources:
            source.left = None if last else 6
        job = Job("numbered")
        build(job, sources, sink)
        chosen = {"key_groups": GROUPS, "parallelism": parallelism, "changelog": next(switch)}
        if last:
            run_job(job, store, config(**chosen, **settings), seed=number)
            continue
        with pytest.raises(UserFunctionError, match="the break"):
            run_job(job, store, config(**chosen, **settings), seed=number)
        assert found_problems(store) == []
    return sources, sink, store


def found_problems(store: MemoryStore) -> list[Finding]:
    return list(structural_findings(asyncio.run(read_inventory(store))).all())


def check_output(sources: Sequence[Breaking], sink: Outside) -> None:
    expected = Counter(record for source in sources for record in source.records)
    assert Counter((key[0], split, n) for key, _, split, n in sink.records) == expected
    numbers = defaultdict(list)
    of_split = defaultdict(list)
    for key, number, split, n in sorted(sink.records, key=lambda record: record[1]):
        numbers[key].append(number)
        of_split[key, split].append(n)
    assert all(found == list(range(1, len(found) + 1)) for found in numbers.values())
    assert all(found == sorted(found) for found in of_split.values())
    assert sink.prepared == {}


@one_by_one(
    build=BUILDS, shapes=SHAPES, changelogs={"on": (True,), "off": (False,), "both": (True, False)}
)
def test_the_output_is_the_input_in_every_shape(
    shapes: Sequence[int], build: Build, changelogs: Sequence[bool]
) -> None:
    sources, sink, store = run_through(shapes, build, changelogs)
    check_output(sources, sink)
    assert_nothing_is_left_over(store)


@pytest.mark.parametrize("shapes", more_in_depth([[1, 21, 4]], [[1, 21, 4], [21, 2, 20]]), ids=str)
def test_the_output_is_the_input_also_with_many_subtasks(shapes: Sequence[int]) -> None:
    sources, sink, _ = run_through(shapes, keyed, [True])
    check_output(sources, sink)


def test_every_checkpoint_of_every_shape_is_sound() -> None:
    """The job keeps all of them; each is restored, and where it can be in two ways."""
    _, _, store = run_through([2, 5, 3, 1, 4], union, [True, True, False], retain=1000)
    report = report_on(store)
    assert report.passed
    assert set(verdicts(report).values()) == {"sound"}
    shapes = {len(o.subtasks) for c in checkpoints(store) for o in c.operators}
    heirs = [s for c in checkpoints(store) for _, s in c.subtasks() if s.inherited]
    assert shapes == {1, 2, 3, 4, 5} and heirs


def broadcast(job: Job, sources: list[Breaking], sink: Outside) -> None:
    left, right = job.source(sources[0], name="left"), job.source(sources[1], name="right")
    left.union(right).broadcast().sink(sink, parallelism=3)


@pytest.mark.parametrize("name", more_in_depth(["up and down"], list(SHAPES)))
def test_what_is_broadcast_arrives_once_at_every_subtask(name: str) -> None:
    sources, sink, _ = run_through(SHAPES[name], broadcast, [True])
    expected = Counter(record for source in sources for record in source.records)
    assert Counter(map(tuple, sink.records)) == Counter({r: 3 * n for r, n in expected.items()})
