"""Whatever records are made of, and whatever shape a job has before and after a restart: what was
in flight is handled exactly once, comes back as it was, and stays in order.

A drawn job runs under back-pressure with barriers that overtake. It goes on in another shape from a
checkpoint with records in flight, and in a third one from a checkpoint of that run.
"""

import itertools
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.property.profiles import looking
from tests.support.clock import VirtualClock
from tests.support.pipelines import Outside
from tests.support.pressure import (
    SlowOutside,
    checkpoints,
    copy_of,
    numbered,
    overtaken,
    pressed,
    resumed_slowly,
    run_pressed,
)
from tests.support.values import VALUES, form_of
from tidelog import Job, Row, StatefulProcessor, StatefulProcessorHandle, Stream, TimerValues
from tidelog.storage.memory import MemoryStore

pytestmark = pytest.mark.usefixtures("workers")


class Point(NamedTuple):
    key: str
    split: int
    number: int
    extra: Any = None


@dataclass
class Order:
    key: str
    split: int
    number: int
    extra: Any = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Frozen:
    key: str
    split: int
    number: int
    extra: Any = ()


class Event(msgspec.Struct):
    key: str
    split: int
    number: int
    extra: Any = None


class Parcel:
    """Named by the job, for it is no data type."""

    def __init__(self, key: str, split: int, number: int, extra: Any) -> None:
        self.key, self.split, self.number, self.extra = key, split, number, extra

    def __repr__(self) -> str:
        return repr(form_of(vars(self)))


def row(key: str, split: int, number: int, extra: Any) -> Row:
    return Row(key=key, split=split, number=number, extra=extra)


MAKERS = st.sampled_from([row, Point, Order, Frozen, Event, Parcel])

Exchange = Callable[[Stream], Stream]


def plain(stream: Stream) -> Stream:
    return stream


def by_key(stream: Stream) -> Stream:
    return stream.key_by(lambda r: r.key)


def evenly(stream: Stream) -> Stream:
    return stream.rebalance()


EXCHANGES: list[Exchange] = [plain, by_key, evenly]


@dataclass(frozen=True)
class Shape:
    """What a restart may change."""

    parallelism: int
    sources: int | None
    before: Exchange
    """In front of the operator that comes before keyed state."""
    behind: Exchange
    """In front of the one behind it."""


SHAPES = st.builds(
    Shape,
    st.integers(1, 4),
    st.one_of(st.none(), st.integers(1, 4)),
    st.sampled_from(EXCHANGES),
    st.sampled_from([plain, by_key]),
)


@dataclass(frozen=True)
class Code:
    """What stays the same in all runs of a job."""

    make: Callable[..., Any]
    extra: Any
    merged: bool
    timed: bool
    sinks: int | None


CODES = st.builds(
    Code, MAKERS, VALUES, st.booleans(), st.booleans(), st.sampled_from([None, 1, 1, 2])
)


class Numbering(StatefulProcessor):
    """Numbers the records of every key, and hands them on whole."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.count = handle.getValueState("count", "n long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: TimerValues) -> Any:
        (count,) = self.count.get() or (0,)
        for record in rows:
            yield Row(key=record.key, record=record, place=count)
            count += 1
        self.count.update((count,))


def job_of(code: Code, shape: Shape, sink: Outside) -> Job:
    job = Job("drawn", record_types=(Parcel,))
    source = job.source(numbered(), parallelism=shape.sources)
    stream = source.map(lambda r: code.make(*r, code.extra), name="make")
    if code.merged:
        stream = stream.union(job.source(numbered(1, 0), name="none"))
    stream = shape.before(stream)
    if code.timed:
        stream = stream.event_time(lambda r: r.number)
    else:
        stream = stream.map(lambda r: r, name="same")
    counted = stream.key_by(lambda r: r.key).transform_with_state(Numbering)
    shape.behind(counted).map(lambda r: r, name="after").sink(sink, parallelism=code.sinks)
    return job


def check(code: Code, shapes: list[Shape], sink: Outside) -> None:
    """All records came once and as they were, and in order where the docs promise one."""
    expected = [code.make(*record, code.extra) for record in numbered().records]
    found = [output.record for output in sink.records]
    order = sorted(range(len(found)), key=lambda at: (found[at].split, found[at].number))
    assert form_of([found[at] for at in order]) == form_of(expected)
    places, numbers = defaultdict(list), defaultdict(list)
    for output in sink.records:
        places[output.key].append(output.place)
        numbers[output.key, output.record.split].append(output.record.number)
    assert all(sorted(seen) == list(range(len(seen))) for seen in places.values())
    if not _taken_out([shape.behind for shape in shapes]):
        assert all(seen == sorted(seen) for seen in places.values()), "outputs out of order"
        before = [shape.before for shape in shapes]
        if evenly not in before and not _taken_out(before):
            assert all(seen == sorted(seen) for seen in numbers.values()), "records out of order"


def _taken_out(exchanges: list[Exchange]) -> bool:
    """An exchange became a plain edge while records were in flight."""
    pairs = itertools.pairwise(exchanges)
    return any(before is not plain and after is plain for before, after in pairs)


@looking(3, deep=33)
@example(
    Code(Point, 1, merged=True, timed=True, sinks=1),
    Shape(4, None, by_key, by_key),
    [(Shape(3, 1, plain, by_key), 0.218), (Shape(2, None, by_key, by_key), 0.084)],
)
@example(
    Code(row, 1, merged=False, timed=False, sinks=1),
    Shape(1, 2, plain, by_key),
    [(Shape(4, None, plain, plain), 0.95), (Shape(4, 3, by_key, plain), 0.416)],
)
@given(CODES, SHAPES, st.lists(st.tuples(SHAPES, st.floats(0, 1)), min_size=1, max_size=2))
def test_what_is_in_flight_is_handled_once_and_in_order_in_every_shape(
    code: Code, first: Shape, restarts: list[tuple[Shape, float]]
) -> None:
    objects, clock = MemoryStore("memory://drawn"), VirtualClock()
    sink = SlowOutside(clock)
    run_pressed(job_of(code, first, sink), objects, pressed(parallelism=first.parallelism), clock)
    shapes = [first]
    check(code, shapes, sink)
    for shape, which in restarts:
        taken = checkpoints(objects)
        # Those of a run before it are of a history that it left.
        held = [c for c in taken if c.author == taken[-1].author and overtaken(c)]
        if not held:
            return
        chosen = held[int(which * (len(held) - 1))]
        shapes.append(shape)
        objects, job = copy_of(objects), partial(job_of, code, shape)
        seed = len(objects._objects)
        sink = resumed_slowly(job, objects, sink, chosen, shape.parallelism, seed)
        check(code, shapes, sink)
