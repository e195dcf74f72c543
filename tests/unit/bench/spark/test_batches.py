"""Figures of measured batches are those of exactly these batches, also on many executors."""

from typing import Any

import pytest

from tidelog_bench.experiment import Size
from tidelog_bench.experiments.spark_commit import bill_of, cells, scaled
from tidelog_bench.spark.batches import BatchWindow, Sum, by_kind, difference, dollars, parse_counts


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
    marks=[
        parse_counts("put changelog 100 9000\nput offsets 3 300"),
        parse_counts("put changelog 108 9800\nput offsets 4 400"),
        parse_counts("put changelog 116 10600\nput offsets 5 500\nget sst 2 7777"),
        parse_counts("put changelog 124 11400\nput offsets 6 600\nget sst 2 7777"),
        parse_counts("put changelog 132 13000\nput offsets 7 700\nget sst 2 7777"),
    ],
    cpu_ms=1000.0,
)


def test_figures_leave_out_what_was_before_the_batches() -> None:
    # A day has a batch a second: 9 PUTs at 0.005 and half a GET at 0.0004 per 1000, 86,400 times.
    day = 86_400 * (9 * 0.005 + 0.5 * 0.0004) / 1000
    assert WINDOW.figures() == {
        "p50_ms": 225.0,
        "p99_ms": 300.0,
        "commit_ms": 20.0,  # the median of 30, 10, 2 and 80
        "requests_per_batch": (32 + 4 + 2) / 4,
        "objects_per_batch": (32 + 4) / 4,
        "uploaded_kb_per_batch": (13000 - 9000 + 400) / 4 / 1e3,
        "dollars_per_day": pytest.approx(day, abs=0.005),
        "cpu_ms_per_batch": 250.0,
        "batches": 4,
    }


def test_curves_start_with_the_first_batch_and_add_up_to_all_bytes() -> None:
    series = WINDOW.series()
    assert series["batch_ms"] == [(0.0, 300.0), (1.0, 100.0), (3.0, 200.0), (4.0, 250.0)]
    assert series["uploaded_kb"] == [(0.0, 0.9), (1.0, 0.9), (3.0, 0.9), (4.0, 1.7)]


def test_the_difference_of_counts_leaves_out_what_did_not_happen_in_between() -> None:
    before = parse_counts("get sst 4 400\nput changelog 8 1000")
    after = parse_counts("get sst 4 400\nlist state 2 0\nput changelog 24 3000")
    found = difference(after, before)
    assert found == {("list", "state"): Sum(2, 0), ("put", "changelog"): Sum(16, 2000)}
    assert by_kind(found, 3) == {"list": {"state": 0.667}, "put": {"changelog": 5.333}}


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


@pytest.mark.parametrize("size", Size)
def test_maintenance_of_the_bill_is_as_rare_as_a_minute_at_a_batch_a_second(size: Size) -> None:
    [*bills] = (cell.settings for cell in cells(size) if "executors" in cell.settings)
    assert bills
    for found in bills:
        batches = int(found["batches"] or 0) if size is Size.QUICK else 60
        assert found["maintenance_ms"] == batches * int(found["trigger_ms"] or 0)
        assert int(found["partitions"] or 0) * int(found["executors"] or 0) == 200
