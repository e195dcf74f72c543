"""Windows of a key: sliding ones keep a record once, however many of them hold it; sessions may
be many and long; and what is stored of both."""

from collections.abc import Iterable, Iterator
from operator import add
from typing import Any

import pytest

from tests.support.clock import VirtualClock
from tests.unit.state.conftest import Bench
from tidelog.changelog.change import ROW_PREFIX_BYTES
from tidelog.runtime.channels.messages import Batch
from tidelog.runtime.channels.partition import ByKey
from tidelog.runtime.operators.operator import OperatorContext
from tidelog.runtime.operators.session_records import RecordsSessions
from tidelog.runtime.operators.session_window import AggregateSessions
from tidelog.runtime.operators.spans import ONCE, WindowSpan
from tidelog.runtime.operators.tumbling_window import aggregate_window
from tidelog.runtime.operators.window import RecordsWindow
from tidelog.state.schema.decode import RowDecoder
from tidelog.state.sessions import MAX_SESSIONS
from tidelog.verify.job.rows import RowScan

GAP = 10
MANY = 5_000


def opened(bench: Bench, window: Any) -> Any:
    window.open(OperatorContext(VirtualClock(), bench.backend))
    return window


def sums(bench: Bench) -> Any:
    return opened(bench, AggregateSessions(GAP, lambda _: 1, add, ONCE))


def give(window: Any, *times: int) -> list[Any]:
    """Records of one key at these times; what is emitted at once."""
    ((_, batch),) = ByKey(lambda _: "k", 1, 4).route(Batch([f"at {t}" for t in times], [*times]))
    return [record for made in window.process(batch) for record in made.records]


def fire(window: Any, watermark: int) -> list[Any]:
    return [record for batch in window.watermark(watermark) for record in batch.records]


def lazily(bench: Bench) -> list[int]:
    """Let the table be read row by row; the number of rows that were read by scans."""
    read, scan = [0], bench.table.scan

    def counted(lower: bytes, upper: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        for row in scan(lower, upper):
            read[0] += 1
            yield row

    bench.table.scan = counted  # type: ignore[method-assign]
    return read


def changed(bench: Bench) -> int:
    """Rows that the next flush logs."""
    before = bench.logged
    bench.backend.flush()
    return bench.logged - before


def test_a_record_between_two_of_many_sessions_reads_these_two_alone(bench: Bench) -> None:
    window = sums(bench)
    for start in range(0, MANY, 100):
        give(window, *(100 * n for n in range(start, start + 100)))
    bench.backend.flush()
    read = lazily(bench)
    middle = 100 * (MANY // 2)
    give(window, middle + GAP, middle + 2 * GAP, middle + 3 * GAP, middle + 50)
    assert read[0] <= 4 * 3
    fired = fire(window, 100 * MANY)
    assert len(fired) == MANY + 1
    assert ("k", middle, middle + 4 * GAP, 4) in fired
    assert ("k", middle + 50, middle + 50 + GAP, 1) in fired
    assert fired == sorted(fired)


def test_a_session_that_grows_is_one_small_row_and_one_timer(bench: Bench) -> None:
    window = sums(bench)
    for time in range(0, 10_000, 5):
        give(window, time)
    assert changed(bench) <= 2
    for time in range(10_000, 20_000, 5):
        give(window, time)
    assert changed(bench) == 1
    assert fire(window, 20_000) == []
    assert fire(window, 1_000_000) == [("k", 0, 19_995 + GAP, 4_000)]


def test_sessions_that_become_one_rewrite_none_of_their_records(bench: Bench) -> None:
    window = opened(bench, RecordsSessions(GAP, lambda k, s, e, r: (k, s, e, r), ONCE))
    give(window, *range(0, 2_000, 5))
    give(window, *range(2_015, 4_000, 5))
    bench.backend.flush()
    give(window, 2_005)
    # The record itself, the session that there is now, and its timer.
    assert changed(bench) <= 3
    ((key, start, end, records),) = fire(window, 1_000_000)
    assert (key, start, end) == ("k", 0, 3_995 + GAP)
    assert records == [f"at {t}" for t in [*range(0, 2_000, 5), 2_005, *range(2_015, 4_000, 5)]]
    bench.backend.flush()
    assert bench.stored == []


def test_rows_of_sessions_are_shown_and_belong_to_their_key_groups(bench: Bench) -> None:
    window = sums(bench)
    give(window, *range(0, 20 * (MAX_SESSIONS + 1), 20))
    bench.backend.flush()
    infos = bench.backend.registry.infos()
    scan = RowScan(4, bench.backend.owned, infos)
    scan.take(bench.stored)
    assert scan.violations == {}
    decoder = RowDecoder(infos)
    shown = {found.kind: found for found in (decoder.decode(*row) for row in bench.stored)}
    assert shown["earlier-sessions"].entry == {"last_ms": 0}
    assert shown["earlier-sessions"].value == [1, 0]
    assert shown["sessions"].key == "k" and shown["sessions"].value[:3] == [1, 20, 20]


SPANS = [(60, 10), (60, 25), (7, 5), (5, 1), (10, 10)]


def counts(bench: Bench, size: int, slide: int) -> Any:
    return opened(bench, aggregate_window(WindowSpan(size, slide), lambda _: 1, add))


def put(window: Any, times: Iterable[int]) -> None:
    assert give(window, *times) == []


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
    put(window, [0, 3, 9])
    assert rows(bench, "window-aggregate") == 1
    logged = bench.logged
    put(window, [5])
    bench.backend.flush()
    assert bench.logged == logged + 1, "the slice alone; its timer is known"
    fired = fire(window, 3_600)
    assert fired == [("k", start, 4) for start in range(-3_590, 1, 10)]
    assert rows(bench, "window-aggregate") == rows(bench, "timers") == 0


def test_records_are_kept_once(bench: Bench) -> None:
    def held(key: Any, start: int, records: list[Any]) -> tuple[int, int]:
        return start, len(records)

    window = opened(bench, RecordsWindow(WindowSpan(60, 10), held))
    put(window, range(60))
    bench.backend.flush()
    decode = RowDecoder(bench.backend.registry.infos()).decode
    found = [decode(*row) for row in bench.stored]
    kept = [row.value for row in found if row.kind == "window-records"]
    assert kept == [[f"at {t}" for t in range(s, s + 10)] for s in range(0, 60, 10)]
    assert dict(fire(window, 10_000)) == {s: 60 - abs(s) for s in range(-50, 60, 10)}
    assert rows(bench, "window-records") == rows(bench, "timers") == 0


@pytest.mark.parametrize("flushes", ["none", "all", "first"])
@pytest.mark.parametrize(("values", "expected"), [([None], None), ([None, 5, 2], 7), ([3], 3)])
def test_a_window_fires_once_and_not_without_a_value(
    bench: Bench, flushes: str, values: list[int | None], expected: int | None
) -> None:
    given = iter(values)
    window = opened(bench, aggregate_window(WindowSpan(10, 10), lambda _: next(given), add))
    for number, _ in enumerate(values):
        put(window, [1])
        if flushes == "all" or (flushes == "first" and number == 0):
            bench.backend.flush()
    assert fire(window, 9) == ([] if expected is None else [("k", 0, expected)])
    assert fire(window, 10_000) == []
    assert rows(bench, "window-aggregate") == rows(bench, "timers") == 0


def test_windows_that_open_and_fire_between_two_flushes_are_not_logged(bench: Bench) -> None:
    window = counts(bench, 10, 10)
    put(window, [1, 12, 2])
    assert fire(window, 9) == [("k", 0, 2)]
    bench.backend.flush()
    assert bench.logged == 2, "the second window and its timer"
    put(window, [13, 25])
    assert fire(window, 19) == [("k", 10, 2)]
    assert fire(window, 29) == [("k", 20, 1)]
    assert rows(bench, "window-aggregate") == rows(bench, "timers") == 0
