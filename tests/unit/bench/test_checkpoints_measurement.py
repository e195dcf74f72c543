"""The measurement behind checkpoint-duration, -size and overhead, in its smallest cells."""

import dataclasses
from pathlib import Path

import pytest

from tidelog.cost.measured.report import BytesPerChange, OperatorReport
from tidelog.storage import object_names
from tidelog_bench.embedded import loads, predictions
from tidelog_bench.embedded.checkpoints import Taken, taken
from tidelog_bench.embedded.run import RunSpec, measure
from tidelog_bench.embedded.running import Running, stored_over_time
from tidelog_bench.embedded.workload import Workload
from tidelog_bench.experiments import checkpoints
from tidelog_bench.measurement import Reading, Setting, Size, Trial
from tidelog_bench.store.latency import LatencyProfile

SMALL: dict[str, Setting] = {
    "latency_ms": 1.0,
    "mb_per_s": 100.0,
    "checkpoint_s": 0.15,
    "materialize_s": 0.4,
    "warm_s": 0.6,
    "seconds": 2.5,
}
WORDS = SMALL | {"job": "wordcount", "key_bytes": 16, "keys": 3_000, "rate": 4_000.0}
WINDOW = SMALL | {"job": "window", "slides": 5, "keys": 50, "rate": 200.0, "window_s": 0.5}


def reading(settings: dict[str, Setting], variant: str, directory: Path) -> Reading:
    return checkpoints.measure_checkpoints(Trial(settings, variant, 1, directory))


def test_with_the_log_the_reading_has_log_table_and_both_predictions(tmp_path: Path) -> None:
    found = reading(WORDS, "on", tmp_path)
    figures = found.figures
    assert figures["checkpoints"] == len(found.series["duration_ms"]) >= 3
    assert figures["checkpoints_failed"] == 0
    assert 2 <= figures["materializations"] < figures["checkpoints"]
    assert 0 < figures["p50_ms"] <= figures["p90_ms"] <= figures["p99_ms"] <= figures["max_ms"]
    # Every word is in the table; Base64 in it compresses by a quarter, and no more.
    assert figures["table_mean_mb"] > 3_000 * 16 * 0.7 / 1e6
    assert 0 < figures["dollars_per_day_requests"] < figures["dollars_per_day"]
    assert figures["requests_per_checkpoint"] >= figures["objects_per_checkpoint"] >= 2
    assert figures["stored_mean_mb"] < figures["stored_peak_mb"]
    assert 0 < figures["log_peak_mb"] < figures["full_peak_mb"]
    assert figures["log_interval_peak_mb"] <= figures["log_peak_mb"]
    # Right within a factor of three, over intervals of three checkpoints.
    assert 1 / 3 < figures["predicted_over_measured"] < 3
    assert figures["estimated_log_stored_peak_mb"] > 0
    assert figures["estimated_checkpoint_ms"] > 1
    top = found.series["predicted_peak_mb"]
    assert top[0][1] == top[1][1] == figures["predicted_peak_mb"]
    assert max(mb for _, mb in found.series["log_mb"]) == pytest.approx(
        figures["log_peak_mb"], abs=1e-4
    )
    assert list(tmp_path.iterdir()) == []


def test_without_the_log_a_checkpoint_is_table_files_and_nothing_is_predicted_of_a_log(
    tmp_path: Path,
) -> None:
    figures = reading(WORDS, "off", tmp_path).figures
    assert figures["checkpoints"] >= 2
    assert figures["log_peak_mb"] == 0
    # Each has its own, unless nothing changed since the one before.
    assert 1 <= figures["materializations"] < figures["checkpoints"]
    assert figures["incremental_mean_mb"] > 0
    assert figures["objects_per_checkpoint"] >= 3  # a table file, its descriptor, the manifest
    assert not figures.keys() & {"predicted_peak_mb", "log_stored_peak_mb"}


def test_the_peak_of_a_window_job_is_predicted_by_the_rule_for_windows(tmp_path: Path) -> None:
    figures = reading(WINDOW, "on", tmp_path).figures
    assert figures["predicted_peak_mb"] > 0
    assert "estimated_checkpoint_ms" not in figures  # that needs a workload of single rows


def test_what_the_store_holds_at_each_moment_is_what_was_written_and_not_deleted() -> None:
    spec = RunSpec(
        Workload(2_000, 16, draws=20_000),
        checkpoint_s=0.1,
        materialize_s=0.3,
        warm_s=0.4,
        seconds=1.0,
        rate=3_000,
        link=LatencyProfile(1.0, 100.0),
        in_memory_store=True,
    )
    seen: list[tuple[Running, list[Taken]]] = []

    async def after(running: Running) -> None:
        seen.append((running, await taken(running)))

    measure(spec, after=after)
    ((running, found),) = seen
    assert running.archive is not None and running.stages.start and running.stages.end
    gone = {d.name for d in running.archive.deletions if d.at <= running.stages.end.wall}
    there = [w for w in running.store.writes if w.ended <= running.stages.end.wall]
    everything = stored_over_time(running)
    assert everything[-1][1] == sum(w.size for w in there if w.name not in gone)
    log = stored_over_time(running, object_names.SEGMENTS)
    assert max(size for _, size in log) < max(size for _, size in everything)

    assert [checkpoint.at_s for checkpoint in found] == sorted(c.at_s for c in found)
    measured = running.stages.end.wall - running.stages.start.wall
    assert found[0].at_s >= 0 and found[-1].at_s <= measured
    for checkpoint in found:
        phases = checkpoint.phases
        total = phases.barrier_s + phases.upload_s + phases.manifest_s
        assert total == pytest.approx(checkpoint.duration_s)
        assert checkpoint.incremental_bytes <= checkpoint.full_bytes
        sizes = checkpoint.sizes
        # Whole segments hold what the manifest names of them, and footers besides.
        assert checkpoint.log_bytes > sizes.log_full_bytes
        assert checkpoint.table_bytes > 0


def test_an_estimate_knows_the_settings_of_the_run() -> None:
    spec = RunSpec(
        Workload(1_000_000, 200),
        checkpoint_s=1.0,
        materialize_s=10.0,
        rate=10_000.0,
        link=LatencyProfile(30.0, 50.0),
    )
    on = predictions.estimated(spec)
    off = predictions.estimated(dataclasses.replace(spec, changelog=False))
    assert on.log is not None and on.checkpoint_s is not None and off.checkpoint_s is not None
    # Of a change: 9 bytes of the block, 4 of its row's prefix, the word with its length, a count.
    assert on.log.bytes_per_s / on.log.changes_per_s == pytest.approx(9 + 4 + 202 + 1, rel=0.02)
    # About 10,000 changes a second of 230 bytes, for ten seconds and what retention adds.
    assert 20e6 < on.log.peak_bytes < 50e6
    assert 0.06 < on.checkpoint_s < 0.2 < off.checkpoint_s
    slow = predictions.estimated(dataclasses.replace(spec, link=LatencyProfile(300.0, 50.0)))
    assert slow.checkpoint_s is not None and slow.checkpoint_s > on.checkpoint_s + 0.5


@pytest.mark.parametrize("size", Size)
def test_each_size_has_its_jobs_and_several_materializations(size: Size) -> None:
    found = loads.cells(size)
    jobs = {
        (c.settings["job"], c.settings.get("key_bytes", c.settings.get("slides"))) for c in found
    }
    wanted = {("wordcount", 200), ("window", 10)}
    wanted |= {("wordcount", 16)} if size is not Size.QUICK else set()
    wanted |= {("window", 5)} if size is Size.FULL else set()
    assert jobs == wanted
    latencies = {c.settings["latency_ms"] for c in found}
    assert latencies == ({0.0, 30.0, 100.0} if size is Size.FULL else {30.0})
    for cell in [*found, *loads.non_stop_cells(size)]:
        settings = {name: float(value) for name, value in cell.settings.items() if name != "job"}  # type: ignore[arg-type]
        assert settings["seconds"] >= 2 * settings["materialize_s"]
        assert settings["warm_s"] > settings["materialize_s"]
        assert settings["warm_s"] > settings.get("window_s", 0.0)
    for cell in found:
        assert float(cell.settings["seconds"] or 0) >= 2.5 * float(
            cell.settings["materialize_s"] or 0
        )
        assert cell.variants == ("on", "off")


@pytest.mark.parametrize("size", Size)
def test_non_stop_cells_are_the_same_loads_with_a_checkpoint_always_due(size: Size) -> None:
    changed = {"checkpoint_s", "seconds", "materialize_s", "warm_s"}
    at_rest = [
        {name: value for name, value in cell.settings.items() if name not in changed}
        for cell in loads.cells(size)
    ]
    non_stop = loads.non_stop_cells(size)
    assert len(non_stop) == {Size.QUICK: 1, Size.STANDARD: 2, Size.FULL: 4}[size]
    for cell in non_stop:
        assert cell.settings["checkpoint_s"] == 0.01
        assert {n: v for n, v in cell.settings.items() if n not in changed} in at_rest


def test_compression_is_that_of_the_operator_that_gains_least() -> None:
    reports = [operator_report(stored=30.0, raw=40.0), operator_report(stored=18.0, raw=20.0)]
    assert predictions.compression(reports) == 0.9
    assert predictions.compression([operator_report(stored=30.0, raw=20.0)]) == 1.0
    assert predictions.compression([operator_report(None, None)]) == 1.0


def operator_report(stored: float | None, raw: float | None) -> OperatorReport:
    per_change = None if stored is None or raw is None else BytesPerChange(raw, stored)
    return OperatorReport("count", (), None, per_change, None, 0, None, 0.0, 0, 0.0, None, None)
