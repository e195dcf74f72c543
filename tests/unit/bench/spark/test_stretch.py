"""Figures of measured batches are those of exactly these batches."""

from typing import Any

import pytest

from tidelog_bench.spark.batch_window import BatchWindow, dollars
from tidelog_bench.spark.counts import parse_counts


def progress(batch: int, ms: int, commits: tuple[int, ...]) -> dict[str, Any]:
    return {
        "batchId": batch,
        "timestamp": f"2026-01-01T00:00:{batch:02d}.500Z",
        "durationMs": {"triggerExecution": ms, "addBatch": ms - 10},
        "stateOperators": [{"commitTimeMs": one, "numRowsTotal": 100} for one in commits],
    }


STRETCH = BatchWindow(
    progress=[
        progress(3, 300, (10, 20)),
        progress(4, 100, (5, 5)),
        progress(6, 200, (1, 1)),
        progress(7, 250, (40, 40)),
    ],
    marks=[
        parse_counts("put changelog 100 9000\nput offsets 3 300"),
        parse_counts("put changelog 108 9800\nput offsets 4 400"),
        parse_counts("put changelog 116 10600\nput offsets 5 500\nget sst 2 7777"),
        parse_counts("put changelog 124 11400\nput offsets 6 600\nget sst 2 7777"),
        parse_counts("put changelog 132 13000\nput offsets 7 700\nget sst 2 7777"),
    ],
    cpu_ms=1000.0,
)


def test_durations_are_of_the_batches_and_commits_are_summed_over_operators() -> None:
    figures = STRETCH.figures()
    assert figures["p50_ms"] == 225.0
    assert figures["p99_ms"] == 300.0
    assert figures["commit_ms"] == 20.0  # the median of 30, 10, 2 and 80
    assert figures["cpu_ms_per_batch"] == 250.0
    assert figures["batches"] == 4


def test_requests_objects_and_bytes_leave_out_what_was_before_the_batches() -> None:
    figures = STRETCH.figures()
    assert figures["requests_per_batch"] == (32 + 4 + 2) / 4
    assert figures["objects_per_batch"] == (32 + 4) / 4
    assert figures["uploaded_kb_per_batch"] == (13000 - 9000 + 400) / 4 / 1e3


def test_curves_start_with_the_first_batch_and_add_up_to_all_bytes() -> None:
    series = STRETCH.series()
    assert series["batch_ms"] == [(0.0, 300.0), (1.0, 100.0), (3.0, 200.0), (4.0, 250.0)]
    assert series["uploaded_kb"] == [(0.0, 0.9), (1.0, 0.9), (3.0, 0.9), (4.0, 1.7)]


def test_a_day_has_a_batch_a_second_however_fast_the_batches_were() -> None:
    # 9 PUTs at 0.005 and half a GET at 0.0004 per 1000, 86,400 times.
    expected = 86_400 * (9 * 0.005 + 0.5 * 0.0004) / 1000
    assert dollars(STRETCH.counts, 4) == pytest.approx(expected)
    assert STRETCH.figures()["dollars_per_day"] == pytest.approx(expected, abs=0.005)
