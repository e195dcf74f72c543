"""Windows against a plain dict: whatever their span, however records, watermarks, flushes and
restarts amid a firing follow each other.

Functions that change what they get are part of it: a slice is in several windows.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final
from unittest import mock

import hypothesis.strategies as st
from hypothesis import given

from tests.property.profiles import looking
from tests.support.clock import VirtualClock
from tests.unit.state.conftest import Bench
from tidelog.changelog.change import ROW_PREFIX_BYTES
from tidelog.runtime.channels.messages import Batch, SideBatch
from tidelog.runtime.channels.partition import ByKey
from tidelog.runtime.operators.operator import OperatorContext
from tidelog.runtime.operators.spans import ONCE, Firing, WindowSpan
from tidelog.runtime.operators.tumbling_window import aggregate_window
from tidelog.runtime.operators.turn import PAUSE
from tidelog.runtime.operators.window import RecordsWindow
from tidelog.state.event_time import MAX_WATERMARK
from tidelog.state.key_groups import encode_key, key_group

KEYS: Final = "abcdefgh"
GROUPS: Final = 4
MOST_STEPS: Final = 14
MOST_RECORDS: Final = MOST_STEPS * 12
_Window = tuple[str, int]

spans = st.integers(1, 24).flatmap(
    lambda size: st.tuples(st.just(size), st.just(size) | st.integers(1, size))
)


def steps_of(keys: str) -> st.SearchStrategy[list[Any]]:
    """What happens to an operator, with records of these keys; at last the data ends."""
    record = st.tuples(st.sampled_from(keys), st.integers(-45, 60))
    step = st.one_of(
        st.tuples(st.just("records"), st.lists(record, min_size=1, max_size=12)),
        st.tuples(st.just("records"), st.lists(record, min_size=1, max_size=12)),
        st.tuples(
            st.just("watermark"),
            st.integers(-50, 70),
            st.integers(0, 6),
            st.sampled_from(["flush", "restart"]),
            st.booleans(),
        ),
        st.tuples(st.just("flush")),
        st.tuples(st.just("forget")),
        st.tuples(st.just("restart")),
    )
    steps = st.lists(step, min_size=4, max_size=MOST_STEPS) | st.lists(step, max_size=4)
    amid = st.tuples(st.integers(0, 6), st.sampled_from(["flush", "restart"]))
    return st.builds(
        lambda some, last: [*some, ("watermark", MAX_WATERMARK, *last, True)], steps, amid
    )


class Model:
    """What windows are to do, record by record."""

    def __init__(self, size: int, slide: int, firing: Firing = ONCE) -> None:
        self.size, self.slide, self.firing = size, slide, firing
        self.watermark = -(1 << 63)
        self.open: dict[_Window, list[int]] = defaultdict(list)
        self.late: list[int] = []

    def starts(self, time: int) -> list[int]:
        """Starts of the windows of a time that are not over."""
        over = self.watermark - self.firing.lateness_ms
        passed = max(time - self.size + 1, over - self.size + 2)
        return [start for start in range(passed, time + 1) if start % self.slide == 0]

    def add(self, number: int, key: str, time: int) -> list[_Window]:
        """Add a record; its windows."""
        windows = [(key, start) for start in self.starts(time)]
        for window in windows:
            self.open[window].append(number)
        if not windows:
            self.late.append(number)
        return windows

    def changed(self, windows: Iterable[_Window]) -> dict[_Window, list[int]]:
        """What is emitted after a buffer that has changed these windows."""
        return {
            window: sorted(self.open[window])
            for window in windows
            if self.firing.updates
            or (self.firing.lateness_ms and window[1] + self.size - 1 <= self.watermark)
        }

    def fire(self, watermark: int) -> dict[_Window, list[int]]:
        before, self.watermark = self.watermark, max(watermark, self.watermark)
        ends = {window: window[1] + self.size - 1 for window in self.open}
        fired = {
            window: sorted(self.open[window])
            for window, end in ends.items()
            if before < end <= self.watermark and not self.firing.updates
        }
        for window, end in ends.items():
            if end + self.firing.lateness_ms <= self.watermark:
                del self.open[window]
        return fired


class Subject:
    """The operator with its state; it can be restarted."""

    def __init__(self, kind: str, make: Callable[..., Any]) -> None:
        """`make` makes an operator of a function for records, or of two for values."""
        self.kind, self._make = kind, make
        self.bench = Bench()
        self.count = self.late = 0
        self._open()

    def _open(self) -> None:
        functions: dict[str, tuple[Any, ...]] = {
            "records": (_emptied,),
            "lists": (lambda r: [r[0]], _extended),
            "sums": (lambda r: _bit(r[0]), _united),
        }
        self.window: Any = self._make(*functions[self.kind])
        context = OperatorContext(VirtualClock(), self.bench.backend)
        self.window.open(context)

    def restart(self) -> None:
        """Come back from a checkpoint that is taken now."""
        self.bench.backend.flush()
        event_time = self.bench.backend.event_time
        self.bench.reopen().event_time = event_time
        self._open()

    def amid(self, what: str) -> None:
        match what:
            case "flush":
                self.bench.backend.flush()
            case "forget":
                for _ in self.bench.backend.flush_in_steps(cache=False):
                    pass
            case "restart":
                self.restart()

    def add(self, records: list[list[Any]]) -> tuple[list[int], list[Any]]:
        """Give records; the numbers of those that are late, and the windows that fire."""
        times = [time for *_, time in records]
        batch = Batch([list(record) for record in records], times)
        ((_, routed),) = ByKey(lambda r: r[1], 1, GROUPS).route(batch)
        late: list[int] = []
        fired: list[Any] = []
        for made in self.window.process(routed):
            if isinstance(made, SideBatch):
                late += [record[0] for record in made.records]
            else:
                fired += map(self._read, made.records)
        return late, fired

    def fire(self, watermark: int, pauses: int, amid: str) -> Iterator[Any]:
        """Windows that fire; after so many pauses there is a flush, or a restart that goes on."""
        before = self.bench.backend.event_time.watermark
        for batch in self.window.watermark(watermark):
            yield from map(self._read, batch.records)
            pauses -= batch is PAUSE
            if batch is PAUSE and pauses == 0 and amid == "flush":
                self.bench.backend.flush()
            elif batch is PAUSE and pauses == 0:
                self.bench.backend.event_time.watermark = before
                self.restart()
                yield from self.fire(watermark, 0, amid)
                return

    def _read(self, fired: tuple[Any, ...]) -> Any:
        *window, value = fired
        if self.kind == "sums":
            bits = int.from_bytes(value, "big")
            value = [number for number in range(bits.bit_length()) if bits >> number & 1]
        return *window, sorted(value)

    def rows(self) -> dict[str, int]:
        """Rows of the table by kind of state."""
        self.bench.backend.flush()
        kinds = {info.id: info.kind for info in self.bench.backend.registry.infos()}
        found: dict[str, int] = defaultdict(int)
        for row, _ in self.bench.table.scan(b"", None):
            found[kinds[int.from_bytes(row[2:ROW_PREFIX_BYTES], "big")]] += 1
        return found


def _emptied(*window: Any) -> Any:
    *fields, records = window
    return *fields, [record.pop(0) for record in records]


def _extended(left: list[int], right: list[int]) -> list[int]:
    left.extend(right)
    right.clear()
    return left


def _bit(number: int) -> bytes:
    # As bytes: an int in a state has at most 64 bits, and a case has more records.
    return (1 << number).to_bytes(MOST_RECORDS // 8, "big")


def _united(left: bytes, right: bytes) -> bytes:
    return bytes(map(int.__or__, left, right))


def in_order(fired: list[tuple[str, int, list[int]]]) -> bool:
    """Whether the windows of each key group come in the order of time, each once."""
    groups: dict[int, list[_Window]] = defaultdict(list)
    for key, start, _ in fired:
        groups[key_group(encode_key(key), GROUPS)].append((key, start))
    return all(
        len(set(windows)) == len(windows)
        and [start for _, start in windows] == sorted(start for _, start in windows)
        for windows in groups.values()
    )


def windows(kind: str, span: tuple[int, int], firing: Firing) -> Callable[..., Any]:
    """What makes the operator."""
    if kind == "records":
        return lambda function: RecordsWindow(WindowSpan(*span), function, firing)
    return lambda *functions: aggregate_window(WindowSpan(*span), *functions, firing)


firings = st.builds(
    Firing, st.just("late"), st.just(0) | st.integers(1, 40), st.sampled_from([False, False, True])
)


@looking(150)
@given(
    st.sampled_from(["sums", "lists", "records"]),
    spans,
    st.just(Firing("late")) | firings,
    steps_of(KEYS),
)
def test_windows_are_those_of_a_dict(
    kind: str, span: tuple[int, int], firing: Firing, steps: list[Any]
) -> None:
    subject, model = Subject(kind, windows(kind, span, firing)), Model(*span, firing)
    slices: dict[tuple[str, tuple[int, ...]], int] = {}
    operators = "tidelog.runtime.operators"
    with (
        mock.patch(f"{operators}.window.TIMERS_PER_STEP", 1),
        mock.patch(f"{operators}.tumbling_window.TIMERS_PER_STEP", 1),
        mock.patch(f"{operators}.overlaps._TOGETHER", 3),
    ):
        for what, *values in steps:
            match what, values:
                case "records", [records]:
                    numbered = [[subject.count + n, *r] for n, r in enumerate(records)]
                    subject.count += len(numbered)
                    changed: list[_Window] = []
                    for number, key, time in numbered:
                        if model.starts(time):
                            of_all = Model(*span).starts(time)
                            slices[key, tuple(of_all)] = of_all[-1]
                        changed += model.add(number, key, time)
                    late, fired = subject.add(numbered)
                    assert sorted(late) == model.late
                    model.late.clear()
                    found = {(k, start): held for k, start, held in fired}
                    assert found == model.changed(changed) and len(found) == len(fired)
                case "watermark", [watermark, pauses, amid, looked]:
                    watermark = max(watermark, model.watermark)
                    fired = list(subject.fire(watermark, pauses, amid))
                    assert in_order(fired)
                    assert {(k, start): held for k, start, held in fired} == model.fire(watermark)
                    passed = model.watermark - firing.lateness_ms - span[0] + 1
                    slices = {s: last for s, last in slices.items() if last > passed}
                    # A look is a flush: windows that none has seen are to fire as well.
                    rows = subject.rows() if looked else {}
                    if looked and kind != "records":
                        assert rows["window-aggregate"] == len(slices)
                    assert rows.get("timers", 0) <= (3 if firing.lateness_ms else 2) * len(slices)
                case _:
                    subject.amid(what)
    assert subject.rows() == {}


def test_a_window_that_is_a_row_is_in_memory_with_its_start_alone_until_it_fires() -> None:
    subject = Subject("sums", windows("sums", (10, 10), ONCE))
    for number in range(20):
        subject.add([[number, "a", 10 * number]])
    subject.amid("flush")
    opened = subject.window._open
    assert not opened.windows and len(opened.flushed) == 20
    assert len(list(subject.fire(105, 0, "flush"))) == 10 == len(opened.flushed)
    assert len(list(subject.fire(MAX_WATERMARK, 0, "flush"))) == 10 and not opened.flushed
