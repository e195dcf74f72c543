"""Joins and enriched streams against a plain computation over all records: whatever the interval
or window, however records, watermarks, flushes, lost memory and restarts follow each other.

Steps are of a few records, so that keys are read in parts and restarts come amid a bucket.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final
from unittest import mock

import hypothesis.strategies as st
from hypothesis import example, given

from tests.property.profiles import looking
from tests.support.clock import VirtualClock
from tests.unit.state.conftest import Bench
from tidelog.runtime.channels.messages import Batch, SideBatch
from tidelog.runtime.channels.partition import ByKey
from tidelog.runtime.operators.enrich import EnrichAtTime, EnrichNow
from tidelog.runtime.operators.join import Join
from tidelog.runtime.operators.operator import Operator, OperatorContext
from tidelog.runtime.operators.spans import Interval, JoinSpan, SameWindow, SharedWindows
from tidelog.runtime.operators.turn import PAUSE
from tidelog.runtime.operators.window import WindowSpan
from tidelog.state import timed_records
from tidelog.state.event_time import MAX_WATERMARK, UNKNOWN, EventTime
from tidelog.state.timed_rows import TimedRows

GROUPS: Final = 2
"""Fewer than keys, so that some share one."""
_Record = list[Any]
"""Side, number, key, time: a list, so that whoever gets one may change it."""

record = st.tuples(st.sampled_from("abc"), st.integers(-40, 60))
records = st.tuples(st.just("records"), st.integers(0, 1), st.lists(record, min_size=1, max_size=8))
step = st.one_of(
    records,
    records,
    records,
    st.tuples(
        st.just("watermark"),
        st.integers(-50, 70),
        st.integers(0, 4),
        st.sampled_from(["flush", "forget", "restart"]),
    ),
    st.tuples(st.sampled_from(["flush", "forget", "restart"])),
)
steps = st.lists(step, max_size=14)
intervals = st.tuples(st.integers(-20, 20), st.integers(0, 25)).map(lambda p: (p[0], sum(p)))
windows = st.integers(1, 20).flatmap(
    lambda size: st.tuples(st.just(size), st.just(size) | st.integers(max(1, size // 3), size))
)


class Subject:
    """An operator of two streams with its state; what it emits downstream is on time there."""

    def __init__(self, make: Callable[[], Operator]) -> None:
        self._make = make
        self.bench = Bench()
        self.watermark = UNKNOWN
        self.emitted: list[tuple[Any, int]] = []
        self.late: list[int] = []
        self._count = self._late_before = 0
        self._open()

    def _open(self) -> None:
        self.operator = self._make()
        self.operator.open(OperatorContext(VirtualClock(), self.bench.backend))

    def restart(self) -> None:
        """Come back from a checkpoint that is taken now."""
        self._late_before = self.late_records
        event_time = self.bench.backend.event_time
        self.bench.reopen().event_time = event_time
        self._open()

    @property
    def late_records(self) -> int:
        """What the operators have counted."""
        return self._late_before + self.operator.late_records

    def amid(self, what: str) -> None:
        match what:
            case "flush":
                self.bench.backend.flush()
            case "forget":
                for _ in self.bench.backend._shed():
                    pass
            case "restart":
                self.restart()

    def add(self, side: int, drawn: list[tuple[str, int]]) -> list[_Record]:
        made = [[side, self._count + n, key, time] for n, (key, time) in enumerate(drawn)]
        self._count += len(made)
        batch = Batch([list(each) for each in made], [time for _, time in drawn])
        ((_, routed),) = ByKey(lambda r: r[2], 1, GROUPS, side=side).route(batch)
        for produced in self.operator.process(routed):
            if isinstance(produced, SideBatch):
                self.late += [each[1] for each in produced.records]
            else:
                self._take(produced)
        self._check_memory()
        return made

    def advance(self, watermark: int, pauses: int = 0, amid: str = "flush") -> None:
        """Move event time on; after so many pauses something happens."""
        before = self.bench.backend.event_time.watermark
        watermark = max(watermark, before)
        for batch in self.operator.watermark(watermark):
            self._take(batch)
            pauses -= batch is PAUSE
            if batch is PAUSE and pauses == 0:
                if amid == "restart":
                    self.bench.backend.event_time.watermark = before
                    self.restart()
                    self.advance(watermark)
                    return
                self.amid(amid)
        self.watermark = watermark
        self._check_memory()

    def _check_memory(self) -> None:
        """What is said to be in memory is what is there."""
        for kept in self.bench.backend.buffer._caches:
            if not isinstance(kept, timed_records.TimedRecords):
                continue
            buckets = kept._buckets.values()
            assert kept._count == sum(memory.count for memory in buckets)
            assert len(kept) == sum(len(memory.unflushed) for memory in buckets)

    def _take(self, batch: Batch) -> None:
        if batch.records:
            assert batch.times is not None
            assert min(batch.times) > self.watermark, "late for whatever follows"
            for made, time in zip(batch.records, batch.times, strict=True):
                self.emitted.append((tuple(r and r[1] for r in made), time))
                for given_away in made:
                    if given_away is not None:
                        given_away.clear()

    def rows(self) -> int:
        self.bench.backend.flush()
        return sum(1 for _ in self.bench.table.scan(b"", None))


class Model:
    """Which pairs there are of records that were on time, and in which buckets of time."""

    def __init__(
        self,
        span: JoinSpan,
        how: str,
        matches: Callable[[int, int], bool],
        kept: JoinSpan | None = None,
    ) -> None:
        self._span, self._how, self._matches = span, how, matches
        self._kept = kept or span
        self.on_time: list[tuple[_Record, list[int]]] = []
        self.late: list[int] = []

    def add(self, made: list[_Record], watermark: int) -> None:
        for each in made:
            side, number, _, time = each
            if self._span.is_late(time, watermark):
                self.late.append(number)
            else:
                self.on_time.append((each, [*self._span.buckets(side, time, watermark)]))

    def emitted(self) -> Counter[tuple[Any, int]]:
        found: Counter[tuple[Any, int]] = Counter()
        paired: set[tuple[int, int]] = set()
        left, right = ([r for r in self.on_time if r[0][0] == side] for side in (0, 1))
        for (_, a, key, time), own in left:
            for (_, b, other_key, other), others in right:
                if key != other_key or not self._matches(time, other):
                    continue
                # In an interval each has one bucket, which are not the same.
                together = set(own) & set(others) if isinstance(self._span, SameWindow) else own
                for bucket in together:
                    _, (at,) = self._span.pairs(time, bucket, [(other, 0, None)], 0)
                    found[(a, b), at] += 1
                    mine = others if isinstance(self._span, Interval) else [bucket]
                    paired |= {(a, bucket), *((b, each) for each in mine)}
        for (side, number, _, time), own in [
            *(left if self._how != "inner" else ()),
            *(right if self._how == "outer" else ()),
        ]:
            for bucket in own:
                if (number, bucket) not in paired:
                    pair = (number, None) if side == 0 else (None, number)
                    found[pair, max(time, self._span.end(bucket))] += 1
        return found

    def most_rows(self, watermark: int) -> int:
        """Rows and marks of the buckets that have not ended."""
        records = [(side, time) for (side, _, _, time), _ in self.on_time]
        live = [
            bucket
            for side, time in records
            for bucket in self._kept.buckets(side, time, watermark)
            if self._kept.end(bucket) > watermark
        ]
        return len(live) * (1 if self._how == "inner" else 2)


def _run(subject: Subject, model: Model, steps: list[Any]) -> None:
    for what, *values in [*steps, ("watermark", MAX_WATERMARK, 0, "")]:
        match what, values:
            case "records", [side, drawn]:
                model.add(subject.add(side, drawn), subject.watermark)
                assert subject.late == model.late
            case "watermark", [watermark, pauses, amid]:
                subject.advance(watermark, pauses, amid)
                assert subject.rows() <= model.most_rows(subject.watermark)
            case _:
                subject.amid(what)
    assert Counter(subject.emitted) == model.emitted()
    assert subject.late_records == len(model.late)
    assert subject.rows() == 0


# A record that comes and goes before a flush, and others of one time before and after a restart.
@example(
    (0, 0),
    "left",
    [
        ("records", 0, [("a", 0)]),
        ("watermark", 0, 0, "flush"),
        ("records", 0, [("c", 1)]),
        ("restart",),
        ("records", 0, [("c", 1)]),
    ],
    1,
)
# Of a key group that is read together after a restart, one key was read before.
@example(
    (0, 0),
    "inner",
    [
        ("records", 1, [("a", 0), ("b", 0), ("c", 0)]),
        ("restart",),
        ("records", 0, [("a", 0), ("b", 0), ("c", 0)]),
    ],
    2,
)
# Into a key group that was read together after a restart comes a key that had no records there.
@example(
    (0, 0),
    "inner",
    [
        ("records", 1, [("a", 0)]),
        ("restart",),
        ("records", 0, [("a", 0), ("b", 0), ("c", 0)]),
        ("records", 1, [("b", 0), ("c", 0)]),
        ("records", 0, [("b", 0), ("c", 0)]),
    ],
    3,
)
@looking(150)
@given(intervals, st.sampled_from(["inner", "left", "outer"]), steps, st.integers(1, 3))
def test_interval_joins_are_those_of_two_loops(
    bounds: tuple[int, int], how: Any, steps: list[Any], most: int
) -> None:
    span = Interval(*bounds)
    model = Model(span, how, lambda left, right: bounds[0] <= right - left <= bounds[1])
    with _small_steps(most):
        _run(Subject(lambda: Join(span, how, "late")), model, steps)


@looking(100)
@given(windows, st.sampled_from(["inner", "left", "outer"]), steps, st.integers(1, 3))
def test_window_joins_are_those_of_two_loops(
    sizes: tuple[int, int], how: Any, steps: list[Any], most: int
) -> None:
    span = SameWindow(WindowSpan(*sizes))
    with _small_steps(most):
        _run(Subject(lambda: Join(span, how, "late")), Model(span, how, lambda *_: True), steps)


@looking(100)
@given(windows, steps, st.integers(1, 3))
def test_joins_that_keep_a_record_once_for_all_windows_are_those_of_two_loops(
    sizes: tuple[int, int], steps: list[Any], most: int
) -> None:
    once = SharedWindows(WindowSpan(*sizes))
    model = Model(SameWindow(WindowSpan(*sizes)), "inner", lambda *_: True, kept=once)
    with _small_steps(most):
        _run(Subject(lambda: Join(once, "inner", "late")), model, steps)


# An older row that comes after a newer one goes as well.
@example([("records", 1, [("a", 1)]), ("records", 1, [("a", 0)])], 1)
@looking(100)
@given(steps, st.integers(1, 3))
def test_a_record_gets_the_newest_row_of_its_time(steps: list[Any], most: int) -> None:
    subject = Subject(lambda: EnrichAtTime(lambda r, row: [r, row], "late"))
    rows: list[tuple[int, int, str]] = []
    waiting: list[_Record] = []
    expected: Counter[Any] = Counter()

    def newest(key: str, time: int) -> int | None:
        return max(((t, n) for t, n, k in rows if k == key and t <= time), default=(0, None))[1]

    with _small_steps(most):
        for what, *values in [*steps, ("watermark", MAX_WATERMARK, 0, "")]:
            match what, values:
                case "records", [side, drawn]:
                    late = len(subject.late)
                    made = subject.add(side, drawn)
                    if side == 1:
                        rows += [(time, number, key) for _, number, key, time in made]
                    else:
                        waiting += [r for r in made if r[3] > subject.watermark]
                        assert len(subject.late) - late == sum(
                            r[3] <= subject.watermark for r in made
                        )
                case "watermark", [watermark, pauses, amid]:
                    subject.advance(watermark, pauses, amid)
                    due = [r for r in waiting if r[3] <= subject.watermark]
                    waiting = [r for r in waiting if r[3] > subject.watermark]
                    expected.update((((n, newest(k, t)), t) for _, n, k, t in due))
                    # Of each key one row, those that are ahead, and their timers.
                    ahead = sum(time > subject.watermark for time, *_ in rows)
                    keys = len({key for *_, key in rows})
                    assert subject.rows() <= len(waiting) + keys + 2 * ahead
                case _:
                    subject.amid(what)
    assert Counter(subject.emitted) == expected


def test_a_start_in_another_shape_amid_a_watermark_keeps_the_rows_that_records_wait_for() -> None:
    subject = Subject(lambda: EnrichAtTime(lambda r, row: [r, row]))
    with _small_steps(1):
        subject.add(1, [("a", 0), ("a", 10)])
        subject.add(0, [("b", 4), ("a", 5)])
        subject.advance(-50)
        stepping = iter(subject.operator.watermark(20))
        for batch in stepping:
            subject._take(batch)
            if batch is PAUSE:
                break  # one of the two records is out
        # As `redistribute` has it: the watermark before, and key groups that are ahead.
        subject.bench.backend.event_time = EventTime(-50, dict.fromkeys(range(GROUPS), 20))
        subject.restart()
        subject.advance(-50)
        subject.advance(20)
    assert Counter(subject.emitted) == Counter({((2, None), 4): 1, ((3, 0), 5): 1})


def test_many_rows_of_a_key_are_read_once_for_all_records_that_wait_also_after_a_restart() -> None:
    subject = Subject(lambda: EnrichAtTime(lambda r, row: [r, row]))
    subject.add(1, [("a", time) for time in range(2000)])
    subject.add(0, [("a", time) for time in range(300)])
    subject.restart()
    read = TimedRows.of_key
    with mock.patch.object(TimedRows, "of_key", autospec=True, side_effect=read) as reads:
        subject.advance(1000)
    assert Counter(subject.emitted) == Counter({((2000 + n, n), n): 1 for n in range(300)})
    assert reads.call_count < 10


@looking(50)
@given(steps)
def test_a_record_gets_the_newest_row_that_has_come(steps: list[Any]) -> None:
    subject = Subject(lambda: EnrichNow(lambda r, row: [r, row]))
    table: dict[str, int] = {}
    expected: list[Any] = []
    for what, *values in steps:
        match what, values:
            case "records", [0, drawn]:
                made = subject.add(0, drawn)
                expected += [((number, table.get(key)), time) for _, number, key, time in made]
            case "records", [_, drawn]:
                table.update({key: number for _, number, key, _ in subject.add(1, drawn)})
            case "watermark", _:
                pass
            case _:
                subject.amid(what)
    assert subject.emitted == expected


@contextmanager
def _small_steps(most: int) -> Iterator[None]:
    records = "tidelog.state.timed_records"
    steps = (records, "tidelog.runtime.operators.join", "tidelog.runtime.operators.enrich")
    with ExitStack() as patches:
        patches.enter_context(mock.patch(f"{records}.LOAD_AFTER", 4 - most))
        patches.enter_context(mock.patch("tidelog.state.timed_rows.MAX_BATCHED", 2 * most))
        patches.enter_context(mock.patch("tidelog.state.timeline.LONG", 2 * most))
        patches.enter_context(mock.patch("tidelog.state.timeline._CHUNK", most))
        for module in steps:
            patches.enter_context(mock.patch(f"{module}.STEP", most))
        yield
