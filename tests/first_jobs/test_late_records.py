"""Which of ten records are late: event time moves after a buffer, which may be one record."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.first_jobs.programs import add_rows, rows_of, run
from tidelog import FileSink, Job, JsonLinesSource, KeyedStream, OutputTag, Row, Stream, Tumbling

TIMES = [1_000, 2_000, 9_000, 500, 8_500, 3_000, 12_000, 2_500, 11_500, 6_000]
"""Of ten readings, in the order in which they are read."""
LATE = [500, 3_000, 2_500, 6_000]
"""Older by more than 1 s than a reading before them, which has ended their window of 1 s."""

Streams = Callable[[Stream], Stream]


def lateness(here: Path, streams: Streams, **settings: Any) -> tuple[list[int], list[int]]:
    """The times that count, and the late ones, both in the order of the output."""
    add_rows(here / "readings" / "all.jsonl", ({"ms": ms, "sensor": "a"} for ms in TIMES))
    job, late = Job("readings"), OutputTag("late")
    timed = streams(job.source(JsonLinesSource(here / "readings")))
    keyed = timed.key_by(lambda reading: reading.sensor)
    windows = counted(keyed, late)
    windows.sink(FileSink(here / "windows"))
    windows.side_output(late).map(lambda r: r.asDict()).sink(FileSink(here / "late"), name="late")
    run(job, here / "store", **settings)
    late_times = [row["ms"] for row in rows_of(here / "late")]
    return [ms for row in rows_of(here / "windows") for ms in row["times"]], late_times


def counted(keyed: KeyedStream, late: OutputTag) -> Stream:
    def times(key: str, start: int, readings: list[Row]) -> dict[str, Any]:
        return {"times": [reading.ms for reading in readings]}

    return keyed.window(Tumbling("1s"), late=late).records(times)


def timed(stream: Stream) -> Stream:
    return stream.event_time(lambda reading: reading.ms, max_delay_ms=1_000)


STREAMS: dict[str, Streams] = {
    "after the source": timed,
    "after a filter": lambda stream: timed(stream.filter(lambda reading: True)),
    "after another exchange": lambda stream: timed(stream.rebalance()),
}


@pytest.mark.parametrize("streams", STREAMS.values(), ids=STREAMS)
def test_with_buffers_of_one_record_each_is_judged_by_those_before_it(
    tmp_path: Path, streams: Streams
) -> None:
    on_time, late = lateness(tmp_path, streams, buffer_records=1)
    assert late == LATE
    assert sorted(on_time) == sorted(set(TIMES) - set(LATE))


def test_within_one_buffer_no_record_is_late(tmp_path: Path) -> None:
    on_time, late = lateness(tmp_path, timed)
    assert not late
    assert sorted(on_time) == sorted(TIMES)
