"""Joins and sessions of a job give what Spark's own give for the same records."""

import pytest

from tests.spark.support.zoo.all import QUERIES
from tests.spark.support.zoo.query import APART_S, END, ordered, records
from tests.spark.support.zoo.windows import GAP_S
from tests.support.pipelines import Outside, run
from tidelog import IterableSource, Job, Session
from tidelog.storage.memory import MemoryStore


@pytest.mark.parametrize(
    ("query", "how"), [("inner_join_format_4", "inner"), ("left_outer_join_format_2", "left")]
)
def test_an_interval_join_is_that_of_spark(query: str, how: str) -> None:
    batches = QUERIES[query].batches()
    job, sink = Job("join"), Outside()
    left, right = (
        job.source(IterableSource(records(batches, side)), name=side)
        .event_time(lambda row: row["t"] * 1000, max_delay_ms=20_000)
        .key_by(lambda row: row["k"])
        for side in ("left", "right")
    )
    bounds = f"-{APART_S}s", f"{APART_S}s"
    left.join(right, bounds, how=how).sink(sink)  # type: ignore[arg-type]  # one of its kinds
    run(job, MemoryStore())
    rows = [
        {"k": a["k"], "t": a["t"], "lv": a["v"], "rv": b and b["v"]}
        for a, b in sink.records
        if a["k"] != END
    ]
    assert ordered(rows) == QUERIES[query].expected(batches)


def test_sessions_are_those_of_spark() -> None:
    batches = QUERIES["session_windows"].batches()
    job, sink = Job("sessions"), Outside()
    timed = job.source(IterableSource(records(batches))).event_time(
        lambda row: row["t"] * 1000, max_delay_ms=20_000
    )
    sessions = timed.key_by(lambda row: row["k"]).window(Session(f"{GAP_S}s"))
    sessions.count().sink(sink)
    run(job, MemoryStore())
    rows = [
        {"start": start // 1000, "k": key, "n": count}
        for key, start, _, count in sink.records
        if key != END
    ]
    assert ordered(rows) == QUERIES["session_windows"].expected(batches)
