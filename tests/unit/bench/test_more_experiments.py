"""The group `more`: each measurement's smallest run, checked where its values are determined."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.support.depth import more_in_depth
from tidelog_bench.embedded.workload import WORKLOADS, Workload
from tidelog_bench.experiments import chosen, memory_limit, rescale, verify, write_buffer
from tidelog_bench.measurement import Reading, Setting, Size, Trial

SMALL = Workload(2_000, 16, draws=20_000)
NAMES = {"encryption", "write-buffer", "memory-limit", "rescale", "changes-view", "verify"}


def workload_of(settings: Mapping[str, Setting]) -> Workload:
    return Trial(settings, "", 1, Path()).read(Workload)


def reading(tmp_path: Path, measure: object, variant: str, **settings: Setting) -> Reading:
    assert callable(measure)
    found = measure(Trial(asdict(SMALL) | settings, variant, 1, tmp_path))
    assert isinstance(found, Reading)
    return found


def test_more_is_a_group_and_part_of_all() -> None:
    assert {experiment.name for experiment in chosen(("more",))} >= NAMES
    assert {experiment.name for experiment in chosen(("all",))} >= {*NAMES, "throughput", "peers"}


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_cell_compares_something_and_a_full_session_has_every_ratio(name: str) -> None:
    (experiment,) = chosen((name,))
    for size in Size:
        cells = experiment.measurement.cells(size)
        assert len({cell.key for cell in cells}) == len(cells) > 0
        for cell in cells:
            assert workload_of(cell.settings).keys > 0
            formed = [r for r in experiment.ratios if {r.over, r.under} <= {*cell.variants}]
            assert formed if size is not Size.FULL else formed == [*experiment.ratios]


def test_a_workload_survives_the_settings_of_a_cell() -> None:
    assert [workload_of(asdict(each)) for each in WORKLOADS.values()] == [*WORKLOADS.values()]


def test_direct_updates_count_every_word_that_was_read(tmp_path: Path) -> None:
    found = reading(tmp_path, write_buffer.run, "bare", warm_s=0.1, seconds=0.2)
    assert found.notes["counted"] == found.notes["read"] > SMALL.keys
    assert 0 < found.figures["records"] < found.notes["counted"]


@pytest.mark.parametrize("variant", ["tidelog", "direct"])
def test_both_pipelines_handle_the_records_of_the_measured_time(
    tmp_path: Path, variant: str
) -> None:
    found = reading(tmp_path, write_buffer.run, variant, warm_s=0.1, seconds=0.3)
    assert set(found.figures) == set(write_buffer.FIGURES)
    records, per_s = found.figures["records"], found.figures["records_per_s"]
    assert records > 0
    assert per_s == pytest.approx(records / found.notes["seconds"], rel=0.01)
    if variant == "direct":
        assert found.notes["counted"] >= records + SMALL.keys


def test_what_is_held_while_the_store_hangs_stays_near_its_limit(tmp_path: Path) -> None:
    limit_mb, flush_mb = 0.05, 65_536 * (21 + 9 + 9) / 1e6
    found = reading(
        tmp_path,
        memory_limit.run,
        "stalled",
        limit_mb=limit_mb,
        memory_mb=64.0,
        row_bytes=0,
        warm_s=0.1,
        calm_s=0.3,
        stall_s=2.5,
        recovery_s=0.5,
    )
    held = found.figures["held_mb_max"]
    assert limit_mb <= held <= limit_mb + flush_mb
    assert found.figures["held_over_limit"] == pytest.approx(held / limit_mb)
    assert 0 < found.figures["used_over_memory"] < 1
    assert found.figures["used_mb_max"] == pytest.approx(64 * found.figures["used_over_memory"])
    assert 0 < found.figures["rss_mb_before"] <= found.figures["rss_mb_max"]
    grown = found.figures["rss_mb_max"] - found.figures["rss_mb_before"]
    assert found.figures["rss_over_memory"] == pytest.approx(grown / 64)
    assert found.figures["backpressured_s"] > 0
    assert max(value for _, value in found.series["held_mb"]) == pytest.approx(held, abs=1e-3)
    handled = [value for _, value in found.series["records"]]
    assert handled == sorted(handled) and handled[-1] > handled[0]


@pytest.mark.parametrize("variant", more_in_depth(["to 1"], ["to 2", "to 1"]))
def test_a_restore_with_fewer_subtasks_fetches_tables_and_log_once(
    tmp_path: Path, variant: str
) -> None:
    figures = reading(
        tmp_path,
        rescale.run,
        variant,
        parallelism=2,
        log_records=12_000,
        upload_s=2.0,
        checkpoint_s=0.5,
        latency_ms=0.0,
        mb_per_s=0.0,
    ).figures
    state, table, fetched = (figures[f"{name}_mb"] for name in ("state", "table", "downloaded"))
    assert 0 < table < state
    # Besides the state only manifests and descriptors are read: some kilobytes.
    assert state <= fetched < state + 0.1
    # No row changes more than once in a flush, and of the splits there are a few changes.
    assert SMALL.keys * 0.5 < figures["changes"] <= 12_000 + 2048 + 100


def test_verify_restores_every_retained_checkpoint_of_the_store_it_fills(tmp_path: Path) -> None:
    found = reading(tmp_path, verify.run, "local", seconds=0.5)
    stored = sum(p.stat().st_size for p in (tmp_path / "store").rglob("*") if p.is_file())
    assert found.figures["stored_mb"] == stored / 1e6 > 0
    manifests = len(list((tmp_path / "store" / "checkpoints").iterdir()))
    # One slot is the start of the job.
    assert found.figures["checkpoints"] == manifests - 1 > 0
    assert found.figures["largest_process_mb"] > 10


def test_a_verification_that_fails_is_no_reading(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="verify ended with"):
        verify.verify("local", tmp_path / "nothing")


def test_only_the_engine_that_needs_spark_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify.prerequisites, "missing", lambda variant: "no Spark here")
    assert verify.missing("spark") == "no Spark here"
    assert verify.missing("local") is None
