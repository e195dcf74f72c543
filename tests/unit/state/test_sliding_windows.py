"""Sliding windows keep a record once, whatever the number of windows that hold it."""

from collections.abc import Iterable
from operator import add
from typing import Any

import pytest

from tests.support.clock import VirtualClock
from tests.unit.state.conftest import Bench
from tidelog.changelog.change import ROW_PREFIX_BYTES
from tidelog.runtime.channels.messages import Batch
from tidelog.runtime.channels.partition import ByKey
from tidelog.runtime.operators.operator import OperatorContext
from tidelog.runtime.operators.spans import WindowSpan
from tidelog.runtime.operators.tumbling_window import aggregate_window
from tidelog.runtime.operators.window import RecordsWindow
from tidelog.state.schema.decode import RowDecoder

SPANS = [(60, 10), (60, 25), (7, 5), (5, 1), (10, 10)]


def opened(bench: Bench, window: Any) -> Any:
    window.open(OperatorContext("windows", 0, 1, VirtualClock(), bench.backend))
    return window


def counts(bench: Bench, size: int, slide: int) -> Any:
    return opened(bench, aggregate_window(WindowSpan(size, slide), lambda _: 1, add))


def give(window: Any, times: Iterable[int]) -> None:
    times = list(times)
    for _, batch in ByKey(lambda _: "k", 1, 4).route(Batch([1] * len(times), times)):
        assert list(window.process(batch)) == []


def fire(window: Any, watermark: int) -> list[Any]:
    return [record for batch in window.watermark(watermark) for record in batch.records]


def rows(bench: Bench, kind: str) -> int:
    """Rows that the table has of states of a kind."""
    bench.backend.flush()
    states = {info.id for info in bench.backend.registry.infos() if info.kind == kind}
    return sum(int.from_bytes(key[2:ROW_PREFIX_BYTES], "big") in states for key, _ in bench.stored)


def starts(time: int, size: int, slide: int) -> list[int]:
    return [start for start in range(time - size + 1, time + 1) if start % slide == 0]


@pytest.mark.parametrize(("size", "slide"), SPANS)
def test_a_slice_is_the_times_that_are_in_the_same_windows(size: int, slide: int) -> None:
    span = WindowSpan(size, slide)
    times = range(-3 * size, 3 * size)
    assert all(span.slice_of(t) <= t and starts(span.slice_of(t), size, slide) for t in times)
    for time in times:
        windows = starts(time, size, slide)
        assert starts(span.slice_of(time), size, slide) == windows
        alike = span.slice_of(time - 1) == span.slice_of(time)
        assert alike == (starts(time - 1, size, slide) == windows)
        for passed in times:
            left = [start for start in windows if start + size - 1 > passed]
            if left:
                assert span.first_after(span.slice_of(time), passed) == left[0]


def test_a_record_of_many_windows_is_one_row_and_its_key_has_one_timer(bench: Bench) -> None:
    window = counts(bench, 3_600, 10)
    give(window, [0, 3, 9])
    assert rows(bench, "window-aggregate") == 1
    logged = bench.logged
    give(window, [5])
    bench.backend.flush()
    assert bench.logged == logged + 1, "the slice alone; its timer is known"
    fired = fire(window, 3_600)
    assert fired == [("k", start, 4) for start in range(-3_590, 1, 10)]
    assert rows(bench, "window-aggregate") == rows(bench, "timers") == 0


def test_records_are_kept_once(bench: Bench) -> None:
    def held(key: Any, start: int, records: list[Any]) -> tuple[int, int]:
        return start, len(records)

    window = opened(bench, RecordsWindow(WindowSpan(60, 10), held))
    give(window, range(60))
    bench.backend.flush()
    decode = RowDecoder(bench.backend.registry.infos()).decode
    found = [decode(*row) for row in bench.stored]
    kept = [row.value for row in found if row.kind == "window-records"]
    assert kept == [[1] * 10] * 6
    assert dict(fire(window, 10_000)) == {s: 60 - abs(s) for s in range(-50, 60, 10)}
    assert rows(bench, "window-records") == rows(bench, "timers") == 0


@pytest.mark.parametrize("flushes", ["none", "all", "first"])
@pytest.mark.parametrize(("values", "expected"), [([None], None), ([None, 5, 2], 7), ([3], 3)])
def test_a_window_without_a_value_fires_once(
    bench: Bench, flushes: str, values: list[int | None], expected: int | None
) -> None:
    given = iter(values)
    window = opened(bench, aggregate_window(WindowSpan(10, 10), lambda _: next(given), add))
    for number, _ in enumerate(values):
        give(window, [1])
        if flushes == "all" or (flushes == "first" and number == 0):
            bench.backend.flush()
    assert fire(window, 9) == [("k", 0, expected)]
    assert fire(window, 10_000) == []
    assert rows(bench, "window-aggregate") == rows(bench, "timers") == 0


def test_windows_that_open_and_fire_between_two_flushes_are_not_logged(bench: Bench) -> None:
    window = counts(bench, 10, 10)
    give(window, [1, 12, 2])
    assert fire(window, 9) == [("k", 0, 2)]
    bench.backend.flush()
    assert bench.logged == 2, "the second window and its timer"
    give(window, [13, 25])
    assert fire(window, 19) == [("k", 10, 2)]
    assert fire(window, 29) == [("k", 20, 1)]
    assert rows(bench, "window-aggregate") == rows(bench, "timers") == 0
