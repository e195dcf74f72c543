"""Sessions of a key with many of them, sessions that are long, and what is stored of both."""

from collections.abc import Iterator
from operator import add
from typing import Any

from tests.support.clock import VirtualClock
from tests.unit.state.conftest import Bench
from tidelog.runtime.channels.messages import Batch
from tidelog.runtime.channels.partition import ByKey
from tidelog.runtime.operators.operator import OperatorContext
from tidelog.runtime.operators.session_records import RecordsSessions
from tidelog.runtime.operators.session_window import AggregateSessions
from tidelog.runtime.operators.spans import ONCE, Firing
from tidelog.state.schema.decode import RowDecoder
from tidelog.state.sessions import MOST_HELD
from tidelog.verify.job.rows import RowScan

GAP = 10
MANY = 5_000


def opened(bench: Bench, window: Any) -> Any:
    window.open(OperatorContext("sessions", 0, 1, VirtualClock(), bench.backend))
    return window


def sums(bench: Bench, firing: Firing = ONCE) -> Any:
    return opened(bench, AggregateSessions(GAP, lambda _: 1, add, firing))


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


def test_two_sessions_far_back_become_one_that_fires_once(bench: Bench) -> None:
    window = sums(bench)
    give(window, *range(0, 40 * MOST_HELD, 20))
    bench.reopen()
    window = sums(bench)
    give(window, 10)
    fired = fire(window, 1_000_000)
    assert fired[:2] == [("k", 0, 20 + GAP, 3), ("k", 40, 40 + GAP, 1)]
    assert sum(value for *_, value in fired) == 2 * MOST_HELD + 1
    assert changed(bench) and bench.stored == []


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


def test_a_session_beyond_the_row_fires_in_time_while_an_older_one_is_still_kept(
    bench: Bench,
) -> None:
    window = sums(bench, Firing(lateness_ms=1_000))
    give(window, *range(0, 100 * (MOST_HELD + 4), 100))
    assert fire(window, 50) == [("k", 0, GAP, 1)]
    assert fire(window, 150) == [("k", 100, 100 + GAP, 1)]
    assert fire(window, 250) == [("k", 200, 200 + GAP, 1)]


def test_rows_of_sessions_are_shown_and_belong_to_their_key_groups(bench: Bench) -> None:
    window = sums(bench)
    give(window, *range(0, 20 * (MOST_HELD + 1), 20))
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
