"""Figures of checkpoints, from checkpoints whose figures are known."""

import pytest

from tidelog.checkpoint.manifest import Author, Checkpoint
from tidelog.checkpoint.sizes import CheckpointSizes
from tidelog.ids import CheckpointId, Generation, Slot
from tidelog_bench.embedded import checkpoint_figures
from tidelog_bench.embedded.checkpoints import Phases, Taken

ENTRY = Checkpoint(Slot(1), Author(Generation(0), "a"), CheckpointId(1), 0, "job", ())


def checkpoint(
    at_s: float, duration_s: float, *, log: int = 0, new: int = 0, table: int = 0
) -> Taken:
    half = duration_s / 2
    return Taken(
        entry=ENTRY,
        at_s=at_s,
        duration_s=duration_s,
        sizes=CheckpointSizes(log, new, table, 0),
        phases=Phases(half, half / 2, half / 2),
        log_bytes=log + 1_000,
        table_bytes=table,
    )


def test_durations_are_nearest_ranks_in_milliseconds() -> None:
    figures = checkpoint_figures.durations([checkpoint(n, n / 1_000) for n in range(1, 1_001)])
    assert figures["mean_ms"] == pytest.approx(500.5)
    assert [figures[f"p{share}_ms"] for share in (50, 90, 99, 999)] == [500, 900, 990, 999]
    assert figures["max_ms"] == 1_000
    assert figures["barrier_p50_ms"] == pytest.approx(250.0)
    assert figures["upload_p50_ms"] == figures["manifest_p50_ms"] == pytest.approx(125.0)


def test_checkpoints_are_counted_by_the_minute() -> None:
    found = [checkpoint(0, 1), checkpoint(1, 1), checkpoint(2, 1)]
    assert checkpoint_figures.counts(found, 6.0) == {
        "checkpoints": 3,
        "checkpoints_per_minute": 30.0,
    }


def test_a_run_without_a_checkpoint_has_a_count_and_no_other_figure() -> None:
    assert checkpoint_figures.counts([], 6.0)["checkpoints"] == 0
    assert checkpoint_figures.durations([]) == {}
    assert checkpoint_figures.sizes([]) == {}
    assert checkpoint_figures.curves([]) == {}


def test_a_full_checkpoint_is_log_and_table_and_what_it_adds_is_only_new() -> None:
    found = [
        checkpoint(0, 1, log=1_000_000, new=500_000, table=8_000_000),
        checkpoint(1, 1, log=3_000_000, new=2_000_000, table=8_000_000),
    ]
    figures = checkpoint_figures.sizes(found)
    assert figures["incremental_mean_mb"] == pytest.approx(1.25)
    assert figures["incremental_max_mb"] == 2.0
    assert figures["full_peak_mb"] == pytest.approx(11.001)
    assert figures["full_mean_mb"] == pytest.approx(10.001)
    assert figures["log_peak_mb"] == 3.0
    assert figures["table_mean_mb"] == 8.0
    curves = checkpoint_figures.curves(found)
    assert curves["full_mb"] == [(0, 9.001), (1, 11.001)]
    assert curves["incremental_mb"] == [(0, 0.5), (1, 2.0)]


def test_the_slowest_come_first_with_where_their_time_went() -> None:
    slow = checkpoint_figures.slowest([checkpoint(n, n) for n in (1, 3, 2, 9, 5, 4, 7)])
    assert [one["ms"] for one in slow] == [9_000, 7_000, 5_000, 4_000, 3_000]
    for one in slow:
        assert one["ms"] == one["barrier_ms"] + one["upload_ms"] + one["manifest_ms"]
