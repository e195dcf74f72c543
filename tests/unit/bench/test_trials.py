"""Every embedded experiment in its smallest cells: real runs, whose figures fit each other."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.depth import more_in_depth
from tidelog import Job, UserFunctionError
from tidelog.storage import object_names
from tidelog_bench.embedded.checkpoints import checkpoints_of
from tidelog_bench.embedded.failure import restart
from tidelog_bench.embedded.jobs import Load, count_words, word_count
from tidelog_bench.embedded.restore import fill, log_after_table
from tidelog_bench.embedded.run import RunSpec, run_trial
from tidelog_bench.embedded.words import Stages, Workload
from tidelog_bench.experiment import Experiment, Reading, Setting, Size, Trial
from tidelog_bench.experiments import (
    RENAMED,
    checkpoints,
    chosen,
    experiments,
    fanout,
    restore,
    throughput,
    unaligned,
)
from tidelog_bench.store.latency import LatencyProfile

STORE: dict[str, Setting] = {"latency_ms": 1.0, "mb_per_s": 100.0}


def reading(module: Any, settings: dict[str, Setting], variant: str, room: Path) -> Reading:
    found: Reading = module.measure(Trial(STORE | settings, variant, 7, room))
    return found


@pytest.mark.parametrize("known", experiments().values(), ids=lambda known: known.name)
def test_every_experiment_has_cells_of_each_size_and_can_form_its_ratios(known: Experiment) -> None:
    for size in Size:
        cells = known.cells(size)
        assert len({cell.key for cell in cells}) == len(cells) > 0
        pairs = [{ratio.over, ratio.under} for ratio in known.ratios]
        assert all(any(pair <= set(cell.variants) for pair in pairs) for cell in cells)
    variants = {variant for cell in known.cells(Size.FULL) for variant in cell.variants}
    assert {name for ratio in known.ratios for name in (ratio.over, ratio.under)} <= variants
    assert set(known.main) <= {figure.name for figure in known.figures}


def test_groups_and_names_of_earlier_versions_choose_experiments() -> None:
    assert [experiment.name for experiment in chosen(("spark",))] == [
        "spark-commit",
        "spark-restore",
    ]
    assert len(chosen(("all",))) == len(experiments())
    for old, now in RENAMED.items():
        assert [experiment.name for experiment in chosen((old,))] == [now]


CHECKPOINTS: dict[str, Setting] = {
    "checkpoint_s": 0.15,
    "materialize_s": 0.4,
    "warm_s": 0.6,
    "seconds": 2.5,
}
WORDS = CHECKPOINTS | {"job": "wordcount", "key_bytes": 16, "keys": 3_000, "rate": 4_000.0}
WINDOW = CHECKPOINTS | {"job": "window", "slides": 5, "keys": 50, "rate": 200.0, "window_s": 0.5}


def test_with_the_log_the_reading_has_log_table_and_both_predictions(tmp_path: Path) -> None:
    found = reading(checkpoints, WORDS, "on", tmp_path)
    figures = found.figures
    assert figures["checkpoints"] == len(found.series["duration_ms"]) >= 3
    assert figures["checkpoints_failed"] == 0
    assert 2 <= figures["materializations"] < figures["checkpoints"]
    # Every word is in the table; Base64 in it compresses by a quarter, and no more.
    assert figures["table_mean_mb"] > 3_000 * 16 * 0.7 / 1e6
    assert 0 < figures["dollars_per_day_requests"] < figures["dollars_per_day"]
    assert figures["requests_per_checkpoint"] >= figures["objects_per_checkpoint"] >= 2
    assert figures["stored_mean_mb"] < figures["stored_peak_mb"]
    assert 0 < figures["log_interval_peak_mb"] <= figures["log_peak_mb"] < figures["full_peak_mb"]
    # Right within a factor of three, over intervals of three checkpoints.
    assert 1 / 3 < figures["predicted_over_measured"] < 3
    assert figures["estimated_log_stored_peak_mb"] > 0
    assert found.series["predicted_peak_mb"][0][1] == figures["predicted_peak_mb"]
    for use, unit in (("cpu", "cores"), ("wire", "mb_per_s"), ("disk_written", "mb_per_s")):
        rates = [rate for _, rate in found.series[f"{use}_{unit}"]]
        peak, average = figures[f"{use}_peak_{unit}"], figures[f"{use}_mean_{unit}"]
        assert 0 < average <= peak and max(rates) <= peak + 1e-4
        assert figures[f"{use}_peak_over_mean"] == pytest.approx(peak / average)
    assert list(tmp_path.iterdir()) == []


def test_without_the_log_a_checkpoint_is_table_files_and_nothing_is_predicted_of_a_log(
    tmp_path: Path,
) -> None:
    figures = reading(checkpoints, WORDS, "off", tmp_path).figures
    assert figures["checkpoints"] >= 2
    assert figures["log_peak_mb"] == 0
    assert figures["objects_per_checkpoint"] >= 3  # a table file, its descriptor, the manifest
    assert not figures.keys() & {"predicted_peak_mb", "log_stored_peak_mb"}


def test_the_peak_of_a_window_job_is_predicted_by_the_rule_for_windows(tmp_path: Path) -> None:
    figures = reading(checkpoints, WINDOW, "on", tmp_path).figures
    assert figures["predicted_peak_mb"] > 0
    assert "estimated_checkpoint_ms" not in figures  # that needs a workload of single rows


def test_where_a_checkpoint_is_always_due_only_their_number_is_measured(tmp_path: Path) -> None:
    figures = reading(checkpoints, WORDS | {"checkpoint_s": 0.01}, "on", tmp_path).figures
    assert figures["checkpoints_per_minute"] > 60 / 0.4
    assert "p50_ms" not in figures


def test_checkpoints_of_off_rare_are_as_rare_as_materializations() -> None:
    rare, often = (Trial(STORE | WORDS, variant, 1, Path()) for variant in ("off-rare", "off"))
    load = rare.read(Load)
    assert (load.spec(rare).checkpoint_s, load.spec(often).checkpoint_s) == (0.4, 0.15)


@pytest.mark.parametrize("size", Size)
def test_several_materializations_are_in_the_measured_time(size: Size) -> None:
    for cell in checkpoints.cells(size):
        settings = {k: float(v) for k, v in cell.settings.items() if k != "job"}  # type: ignore[arg-type]
        assert settings["seconds"] >= 2 * settings["materialize_s"]
        assert settings["warm_s"] > max(settings["materialize_s"], settings.get("window_s", 0.0))


SPEC = RunSpec(
    Workload(2_000, 16, draws=20_000),
    checkpoint_s=0.1,
    materialize_s=0.3,
    warm_s=0.4,
    seconds=1.0,
    rate=3_000.0,
    link=LatencyProfile(1.0, 100.0),
)


def test_what_the_store_holds_at_each_moment_is_what_was_written_and_not_deleted(
    tmp_path: Path,
) -> None:
    run = run_trial(SPEC, count_words, tmp_path, archived=True)
    begun, ended = run.measured
    gone = {name for name, at in run.store.deletions if at <= ended.mark.wall}
    there = [w for w in run.store.writes if w.ended <= ended.mark.wall]
    everything = run.stored_over_time()
    assert everything[-1][1] == sum(w.size for w in there if w.name not in gone)
    log = run.stored_over_time(object_names.SEGMENTS)
    assert max(size for _, size in log) < max(size for _, size in everything)

    found = asyncio.run(checkpoints_of(run))
    assert [checkpoint.at_s for checkpoint in found] == sorted(c.at_s for c in found)
    assert found[0].at_s >= 0 and found[-1].at_s <= ended.mark.wall - begun.mark.wall
    for checkpoint in found:
        phases = checkpoint.phases
        total = phases.barrier_s + phases.upload_s + phases.manifest_s
        assert total == pytest.approx(checkpoint.duration_s)
        assert checkpoint.incremental_bytes <= checkpoint.full_bytes
        # Whole segments hold what the manifest names of them, and footers besides.
        assert checkpoint.log_bytes > checkpoint.sizes.log_full_bytes
        assert checkpoint.table_bytes > 0


FASTEST = WORDS | {"draws": 20_000, "skewed": False, "rate": 6_000.0, "materialize_s": 1_000.0}
"""Whole buffers would take all that the processor has, and tell no more."""


def test_each_variant_of_throughput_has_its_interval_and_its_local_copies(tmp_path: Path) -> None:
    for variant, copies in (("off", None), ("off-rare", None), ("on-local", ".seg")):
        room = tmp_path / variant
        room.mkdir()
        figures = reading(throughput, FASTEST | {"seconds": 1.5}, variant, room).figures
        assert (figures["checkpoints"] >= 1) == (variant != "off-rare")
        assert ("checkpoint_p50_ms" in figures) == (variant != "off-rare")
        assert figures["checkpoints_failed"] == 0 < figures["records_per_s"]
        names = {file.suffix for file in (room / "copies").rglob("*") if file.is_file()}
        assert copies in names if copies else not names


WIDE: dict[str, Setting] = dict(fanout.cells(Size.QUICK)[0].settings) | {
    "latency_ms": 1.0,
    "checkpoint_s": 0.1,
    "materialize_s": 60.0,
    "checkpoints": 3,
    "seconds": 30.0,
    "parallelism": 3,
}


def test_only_without_the_log_every_subtask_writes_its_table_for_every_checkpoint(
    tmp_path: Path,
) -> None:
    off, on = (fanout.measure(Trial(WIDE, v, 1, tmp_path)).figures for v in ("off", "on"))
    assert off["log_objects_per_checkpoint"] == 0
    # A new table file and a descriptor of each of the three, and the manifest.
    assert off["table_objects_per_checkpoint"] >= 2 * 3
    assert off["objects_per_checkpoint"] == off["table_objects_per_checkpoint"] + 1
    assert off["requests_per_checkpoint"] > off["objects_per_checkpoint"]
    # With the log all share one object or the manifest.
    assert on["table_objects_per_checkpoint"] == 0
    assert 1 <= on["objects_per_checkpoint"] <= 3
    assert on["kb_per_checkpoint"] > 0


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
    found = reading(unaligned, settings, variant, tmp_path)
    figures = found.figures
    durations = [ms for _, ms in found.series["duration_ms"]]
    assert figures["checkpoints"] == len(durations) > 0
    assert figures["records_per_s"] > 0
    assert figures["max_ms"] == pytest.approx(max(durations), abs=0.01)
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
    # Words are drawn at random among the keys: some come twice, and a flush counts them once.
    assert found["replayed_changes"] >= int(str(settings["log_records"])) * 0.5
    if variant == "on-local":
        assert found["downloaded_mb"] < 0.1 < 0.4 < found["state_mb"]
    else:
        # With fewer subtasks too, tables and log are fetched once.
        assert found["state_mb"] + 0.1 > found["downloaded_mb"] >= found["state_mb"]
        assert found["state_mb"] > found["table_mb"]


@pytest.mark.parametrize("variant", ["on", "off"])
def test_what_is_left_to_restore_is_the_log_of_the_last_run_alone(
    tmp_path: Path, variant: str
) -> None:
    settings = STORE | RESTORED_WORDS | {"keys": 20_000, "log_records": 1}
    fill(Trial(settings, variant, 1, tmp_path))
    left = asyncio.run(log_after_table(tmp_path / "store"))
    # One buffer of 2,048 words, and not the 20,000 that came before.
    assert left == 0 if variant == "off" else 0 < left <= 2_048


FAILING: dict[str, Setting] = {
    "checkpoint_s": 0.1,
    "materialize_s": 0.4,
    "warm_s": 0.3,
    "limit_s": 60.0,
    "job": "wordcount",
    "key_bytes": 200,
    "keys": 2_000,
    "rate": 3_000.0,
}
BUFFER_S = 0.02
"""A source hands out so much at a time, so a job may be that much ahead."""


def test_a_job_that_fails_does_again_what_no_checkpoint_has_and_catches_up(tmp_path: Path) -> None:
    moments = set()
    for variant in ("on", "off-rare"):
        room = tmp_path / variant
        room.mkdir()
        found = reading(restore, FAILING, variant, room)
        figures = found.figures
        assert figures["reprocessed_mb"] == figures["reprocessed_records"] * 200 / 1e6
        assert 0 < figures["stopped_s"] < figures["down_s"] < figures["caught_up_s"]
        assert figures["restore_s"] < figures["down_s"]
        # At the first read after the failure the downtime and what is done again are missing.
        least = figures["down_s"] - figures["stopped_s"] + figures["reprocessed_s"]
        assert figures["behind_peak_s"] >= least - BUFFER_S - 1e-6
        assert variant == "on" or figures["replayed_changes"] == 0
        assert figures["downloaded_mb"] > 2_000 * 200 * 0.5 / 1e6
        moments.add(found.notes["moment"])
    # The variants of a pair fail at the same share of the time between two checkpoints.
    assert len(moments) == 1


def test_a_restart_goes_on_at_the_newest_checkpoint(tmp_path: Path) -> None:
    found = asyncio.run(restart(SPEC, count_words, tmp_path, warm_s=0.3, limit_s=0.0, rest_s=0.0))
    assert found.stages.failed and found.stages.resumed
    assert found.first.incarnation is not None and found.second.incarnation is not None
    restored = found.second.incarnation.plan.checkpoint
    assert restored is not None
    assert restored.slot == found.first.incarnation.driver.next_slot - 1
    assert found.stages.failed.wall < found.stopped < found.up


def test_a_job_that_fails_by_itself_fails_the_run(tmp_path: Path) -> None:
    def build(stages: Stages) -> Job:
        def read(position: int) -> list[str] | None:
            if position > 2_000:
                raise ZeroDivisionError
            return stages.read(position)

        return word_count(read)

    with pytest.raises(UserFunctionError, match="ZeroDivisionError"):
        asyncio.run(restart(SPEC, build, tmp_path, warm_s=0.3, limit_s=60.0, rest_s=0.0))
    with pytest.raises(UserFunctionError, match="ZeroDivisionError"):
        run_trial(replace(SPEC, seconds=60.0), build, tmp_path)
