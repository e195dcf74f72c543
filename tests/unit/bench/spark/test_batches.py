"""Figures of measured batches are those of exactly these batches, also on many executors."""

from typing import Any

import pytest

from tidelog_bench.experiments.spark_commit import bill_of, scaled
from tidelog_bench.spark.batches import BatchWindow, Sum, difference, dollars, parse_counts


def progress(batch: int, ms: int, commits: tuple[int, ...]) -> dict[str, Any]:
    return {
        "batchId": batch,
        "timestamp": f"2026-01-01T00:00:{batch:02d}.500Z",
        "durationMs": {"triggerExecution": ms, "addBatch": ms - 10},
        "stateOperators": [{"commitTimeMs": one, "numRowsTotal": 100} for one in commits],
    }


WINDOW = BatchWindow(
    progress=[
        progress(3, 300, (10, 20)),
        progress(4, 100, (5, 5)),
        progress(6, 200, (1, 1)),
        progress(7, 250, (40, 40)),
    ],
    counts=difference(
        parse_counts("put changelog 132 13000\nput offsets 7 700\nget sst 2 7777"),
        parse_counts("put changelog 100 9000\nput offsets 3 300"),
    ),
    cpu_ms=1000.0,
)


def test_figures_leave_out_what_was_before_the_batches() -> None:
    # A day has a batch a second: 9 PUTs at 0.005 and half a GET at 0.0004 per 1000, 86,400 times.
    day = 86_400 * (9 * 0.005 + 0.5 * 0.0004) / 1000
    assert WINDOW.reading().figures == {
        "p50_ms": 225.0,
        "p99_ms": 300.0,
        "p99_over_p50": 300 / 225,
        "commit_ms": 20.0,  # the median of 30, 10, 2 and 80
        "requests_per_batch": (32 + 4 + 2) / 4,
        "objects_per_batch": (32 + 4) / 4,
        "uploaded_kb_per_batch": (13000 - 9000 + 400) / 4 / 1e3,
        "dollars_per_day": pytest.approx(day, abs=0.005),
        "cpu_ms_per_batch": 250.0,
        "batches": 4,
    }


def test_of_ten_executors_only_what_executors_do_is_scaled() -> None:
    one = parse_counts("delete changelog 7 0\nget sst 3 30\nput changelog 20 200\nput commits 2 60")
    assert scaled(one, 10) == {
        ("delete", "changelog"): Sum(70, 0),
        ("get", "sst"): Sum(30, 300),
        ("put", "changelog"): Sum(200, 2000),
        ("put", "commits"): Sum(2, 60),
    }
    bill = bill_of(WINDOW, 10)
    assert bill.figures["objects_per_batch"] == 81  # 10 x 8 changelogs and one file of offsets
    by_class = bill.notes["dollars_by_class"]
    assert by_class["changelog"] == 34.56  # 80 PUTs per batch x 86,400 x 0.005 / 1000
    whole = dollars(scaled(WINDOW.counts, 10), 4)
    assert sum(by_class.values()) == pytest.approx(whole, abs=0.02)
