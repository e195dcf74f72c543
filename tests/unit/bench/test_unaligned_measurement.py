"""The measurement behind unaligned, in its smallest cells."""

from pathlib import Path

import pytest

from tests.support.depth import more_in_depth
from tidelog_bench.experiments import unaligned
from tidelog_bench.measurement import Reading, Setting, Size, Trial

SLOW: dict[str, Setting] = {
    "latency_ms": 1.0,
    "mb_per_s": 100.0,
    "load": "slow sink",
    "parallelism": 2,
    "channel_buffers": 32,
    "sink_ms": 2.0,
    "timeout_s": 1e-3,
    "checkpoint_s": 0.1,
    "warm_s": 0.3,
    "seconds": 2.0,
}
FREE = SLOW | {"load": "none", "sink_ms": 0.0, "seconds": 1.0}


def reading(settings: dict[str, Setting], variant: str, directory: Path) -> Reading:
    return unaligned.measure_unaligned(Trial(settings, variant, 1, directory))


def check(found: Reading) -> None:
    figures = found.figures
    durations = [ms for _, ms in found.series["duration_ms"]]
    assert figures["checkpoints"] == len(durations) > 0
    assert figures["records_per_s"] > 0
    assert figures["max_ms"] == pytest.approx(max(durations), abs=0.01)
    assert figures["p50_ms"] <= figures["p90_ms"] <= figures["p99_ms"] <= figures["max_ms"]
    assert all(at >= 0 for at, _ in found.series["duration_ms"])
    assert figures["requests_per_checkpoint"] > 0


def test_aligned_barriers_overtake_nothing(tmp_path: Path) -> None:
    found = reading(SLOW, "aligned", tmp_path)
    check(found)
    assert found.figures["unaligned_share"] == 0
    assert found.figures["in_flight_mb"] == found.figures["in_flight_objects_max"] == 0


@pytest.mark.parametrize("variant", more_in_depth(["timeout"], ["timeout", "unaligned"]))
def test_barriers_that_overtake_store_what_they_overtook(tmp_path: Path, variant: str) -> None:
    found = reading(SLOW, variant, tmp_path)
    check(found)
    figures = found.figures
    assert 0 < figures["unaligned_share"] <= 1
    # Some thousand records of ten bytes at least lie in the channels of two subtasks.
    assert figures["in_flight_mb"] > 0.01
    assert 0 < figures["in_flight_objects"] <= figures["in_flight_objects_max"]


def test_without_back_pressure_records_are_counted(tmp_path: Path) -> None:
    check(reading(FREE, "unaligned", tmp_path))


@pytest.mark.parametrize("size", Size)
def test_every_size_has_back_pressure_and_all_three_kinds_of_barriers(size: Size) -> None:
    found = unaligned.cells(size)
    assert any(cell.settings["load"] == "slow sink" for cell in found)
    for cell in found:
        assert cell.variants == ("aligned", "timeout", "unaligned")
