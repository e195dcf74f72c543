"""The measurement behind resources, in its smallest cells."""

from pathlib import Path

import pytest

from tidelog_bench.experiments import resources
from tidelog_bench.measurement import Reading, Setting, Size, Trial

SMALL: dict[str, Setting] = {
    "latency_ms": 1.0,
    "mb_per_s": 100.0,
    "job": "wordcount",
    "key_bytes": 200,
    "keys": 2_000,
    "rate": 5_000.0,
    "checkpoint_s": 0.1,
    "rare_checkpoint_s": 0.8,
    "warm_s": 0.4,
    "seconds": 2.0,
    "step_s": 0.2,
}


def reading(variant: str, directory: Path) -> Reading:
    return resources.measure_resources(Trial(SMALL, variant, 1, directory))


@pytest.fixture(scope="module")
def readings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Reading]:
    variants = resources.cells(Size.QUICK)[0].variants
    return {variant: reading(variant, tmp_path_factory.mktemp("trial")) for variant in variants}


def test_a_curve_has_the_mean_and_the_peak_that_the_figures_have(
    readings: dict[str, Reading],
) -> None:
    for found in readings.values():
        figures = found.figures
        for use, unit in (("cpu", "cores"), ("wire", "mb_per_s"), ("disk_written", "mb_per_s")):
            rates = [rate for _, rate in found.series[f"{use}_{unit}"]]
            peak, average = figures[f"{use}_peak_{unit}"], figures[f"{use}_mean_{unit}"]
            assert max(rates) == pytest.approx(peak, abs=1e-4)
            assert 0 < average <= peak
            assert figures[f"{use}_peak_over_mean"] == pytest.approx(peak / average)


def test_the_interval_is_that_of_the_variant(readings: dict[str, Reading]) -> None:
    counts = {name: found.figures["checkpoints_per_minute"] for name, found in readings.items()}
    assert counts["off-rare"] <= 60 / 0.4
    assert counts["on"] > 2 * counts["off-rare"]
    # Without the log every checkpoint uploads tables, with it only materializations do.
    notes = {name: found.notes["table_uploads"] for name, found in readings.items()}
    assert notes["off"] > notes["on"]


def test_the_network_carries_what_a_log_of_the_input_takes(readings: dict[str, Reading]) -> None:
    """Random words among 2,000, a few hundred of them in a flush: most get into the log."""
    figures = readings["on"].figures
    assert figures["wire_mean_mb_per_s"] > figures["records_per_s"] * 200 * 0.3 / 1e6


@pytest.mark.parametrize("size", Size)
def test_the_rare_interval_fits_the_measured_time_twice(size: Size) -> None:
    for cell in resources.cells(size):
        settings = {k: float(v) for k, v in cell.settings.items() if k != "job"}  # type: ignore[arg-type]
        assert (
            settings["seconds"] >= 2 * settings["rare_checkpoint_s"] >= 8 * settings["checkpoint_s"]
        )
        assert cell.variants == ("on", "off", "off-rare")
