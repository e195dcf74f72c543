"""Every embedded experiment in its smallest cells: real runs, whose figures fit each other."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.bench_trials import trial_in
from tests.support.depth import more_in_depth
from tidelog.effects import CACHE_VARIABLE
from tidelog_bench.experiment import Experiment, Reading, Setting, Size
from tidelog_bench.experiments import (
    checkpoints,
    experiments,
    restart,
    restore,
    stability,
    unaligned,
)

STORE: dict[str, Setting] = {"latency_ms": 1.0, "mb_per_s": 100.0}


def reading(module: Any, settings: dict[str, Setting], variant: str, room: Path) -> Reading:
    found: Reading = module.measure(trial_in(room, STORE | settings, variant))
    return found


@pytest.mark.parametrize("known", experiments().values(), ids=lambda known: known.name)
def test_every_experiment_has_cells_of_each_size_and_can_form_its_ratios(known: Experiment) -> None:
    for size in Size:
        cells = known.cells(size)
        assert len({cell.key for cell in cells}) == len(cells) > 0
        pairs = [{ratio.over, ratio.under} for ratio in known.ratios]
        # One that holds an estimate against what was measured has no two variants.
        compares = [any(pair <= set(cell.variants) for pair in pairs) for cell in cells]
        assert not pairs or all(compares)
    variants = {variant for cell in known.cells(Size.FULL) for variant in cell.variants}
    assert {name for ratio in known.ratios for name in (ratio.over, ratio.under)} <= variants


CHECKPOINTS: dict[str, Setting] = {
    "checkpoint_s": 0.15,
    "materialize_s": 0.4,
    "warm_s": 0.6,
    "seconds": 2.5,
}
WORDS = CHECKPOINTS | {"job": "wordcount", "key_bytes": 16, "keys": 3_000, "rate": 4_000.0}


def test_with_the_log_the_reading_has_log_and_table(tmp_path: Path) -> None:
    figures = reading(checkpoints, WORDS, "on", tmp_path).figures
    assert figures["checkpoints"] >= 3
    assert figures["checkpoints_failed"] == 0
    assert 2 <= figures["materializations"] < figures["checkpoints"]
    # Every word is in the table; Base64 in it compresses by a quarter, and no more.
    assert figures["table_mean_mb"] > 3_000 * 16 * 0.7 / 1e6
    assert 0 < figures["dollars_per_day_requests"] < figures["dollars_per_day"]
    assert figures["requests_per_checkpoint"] >= figures["objects_per_checkpoint"] >= 2
    assert 0 < figures["log_peak_mb"] < figures["full_peak_mb"]
    assert figures["stored_mean_mb"] > figures["table_mean_mb"]
    assert not any((tmp_path / "trial-0").iterdir())


PRESSED: dict[str, Setting] = {
    "load": "slow sink",
    "parallelism": 2,
    "channel_buffers": 32,
    "sink_ms": 2.0,
    "timeout_s": 1e-3,
    "checkpoint_s": 0.1,
    "warm_s": 0.3,
    "seconds": 2.0,
}
FREE = PRESSED | {"load": "none", "sink_ms": 0.0, "seconds": 1.0}


@pytest.mark.parametrize(
    ("settings", "variant"),
    more_in_depth(
        [(PRESSED, "aligned"), (PRESSED, "timeout")],
        [(PRESSED, "aligned"), (PRESSED, "timeout"), (PRESSED, "unaligned"), (FREE, "unaligned")],
    ),
)
def test_only_barriers_that_overtake_store_what_they_overtook(
    tmp_path: Path, settings: dict[str, Setting], variant: str
) -> None:
    figures = reading(unaligned, settings, variant, tmp_path).figures
    assert figures["checkpoints"] > 0
    assert figures["records_per_s"] > 0
    assert 0 < figures["p50_ms"] <= figures["p99_ms"] <= figures["max_ms"]
    if variant == "aligned":
        assert figures["unaligned_share"] == figures["in_flight_objects_max"] == 0
    elif settings is PRESSED:
        # Some thousand records of ten bytes at least lie in the channels of two subtasks.
        assert figures["in_flight_mb"] > 0.01
        assert 0 < figures["in_flight_objects"] <= figures["in_flight_objects_max"]


RESTORED: dict[str, Setting] = {"checkpoint_s": 0.05}
RESTORED_WORDS = RESTORED | {
    "job": "wordcount",
    "key_bytes": 200,
    "keys": 3_000,
    "log_records": 4_000,
}
RESTORED_WINDOW = RESTORED | {
    "job": "window",
    "slides": 5,
    "window_records": 500,
    "log_records": 250,
}


@pytest.mark.parametrize(
    ("settings", "variant", "least_table_mb"),
    [
        (RESTORED_WORDS, "on", 0.4),
        (RESTORED_WINDOW, "on", 0.05),
        (RESTORED_WORDS, "off", 0.4),
        (RESTORED_WORDS, "on-local", 0.4),
        (RESTORED_WORDS | {"parallelism": 2}, "to 1", 0.4),
    ],
)
def test_a_restore_reads_a_table_and_replays_the_log_after_it(
    tmp_path: Path, settings: dict[str, Setting], variant: str, least_table_mb: float
) -> None:
    found = reading(restore, settings, variant, tmp_path).figures
    assert found["restore_s"] <= found["running_s"] <= found["first_record_s"]
    parts = found["takeover_s"] + found["restore_s"] + found["start_s"]
    assert parts == pytest.approx(found["running_s"])
    for phase in ("download_s", "open_s", "fetch_log_s", "replay_s"):
        assert 0 <= found[phase] <= found["restore_s"]
    assert found["table_mb"] > least_table_mb
    if variant == "off":
        assert found["replayed_changes"] == found["fetch_log_s"] == 0
        assert found["downloaded_mb"] >= found["state_mb"] == found["table_mb"]
        return
    # What was made for the first restore is what the next one restores.
    again = reading(restore, settings, variant, tmp_path).figures
    assert again["replayed_changes"] == found["replayed_changes"]
    # Words are drawn at random among the keys: some come twice, and a flush counts them once.
    assert found["replayed_changes"] >= int(str(settings["log_records"])) * 0.5
    if variant == "on-local":
        assert found["downloaded_mb"] < 0.1 < 0.4 < found["state_mb"]
    else:
        # With fewer subtasks too, tables and log are fetched once.
        assert found["state_mb"] + 0.1 > found["downloaded_mb"] >= found["state_mb"]
        assert found["state_mb"] > found["table_mb"]


STEADY: dict[str, Setting] = {
    "keys": 2_000,
    "memory_mib": 32,
    "checkpoint_s": 0.1,
    "materialize_s": 0.3,
    "warm_s": 0.3,
    "testing_s": 0.4,
    "running_s": 1.0,
    "share": 0.5,
}


@pytest.mark.parametrize(
    "variant", more_in_depth(["tidelog"], ["tidelog", "tidelog-local", "flink-stream"])
)
def test_records_arrive_at_a_share_of_what_the_system_can_take(
    tmp_path: Path, variant: str
) -> None:
    if reason := stability.missing(variant):
        pytest.skip(reason)
    found = reading(stability, STEADY, variant, tmp_path).figures
    assert found["arriving_per_s"] == found["records_per_s"] * 0.5 > 0
    percentiles = [found[f"late_{name}_ms"] for name in ("p50", "p99", "p999", "max")]
    assert percentiles[0] >= 0 and percentiles == sorted(percentiles)
    assert found["stop_ms"] > 0
    assert found["checkpoints"] > 0
    assert 0 < found["checkpoint_p50_ms"] <= found["checkpoint_p99_ms"]
    assert found["checkpoint_p99_ms"] <= found["checkpoint_max_ms"]


RESTARTED: dict[str, Setting] = {
    "latency_ms": 5.0,
    "mb_per_s": 20.0,
    "state_gb": 0.01,
    "log_changes": 2_000,
    "checkpoint_s": 0.2,
    "warm_records": 2_000,
    "records": 2_000,
    "keys": "zipf",
}


@pytest.mark.parametrize("use", ["job", "program"])
def test_a_restart_that_does_not_wait_for_its_state_looks_up_the_rows_that_were_stored(
    tmp_path: Path, use: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    settings = {**RESTARTED, "use": use, "records": 8_192 if use == "program" else 70_000}
    found = reading(restart, settings, "at-once", tmp_path).figures
    whole = reading(restart, settings, "when-whole", tmp_path).figures
    assert found["first_output_s"] <= found["to_512_s"]
    assert found["requests"] > whole["requests"]
    assert found["left_files"] == found["left_mb"] == 0
    if use == "job":
        assert found["to_512_s"] <= found["to_8192_s"] <= found["to_65536_s"]
        assert found["first_output_s"] < found["whole_s"]
    assert len(list((tmp_path / "cache" / "bench-restart").iterdir())) == 1
