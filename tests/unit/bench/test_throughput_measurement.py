"""The measurement behind throughput, in its smallest cells."""

from pathlib import Path

import pytest

from tidelog_bench.experiments import throughput
from tidelog_bench.measurement import Reading, Setting, Size, Trial

SMALL: dict[str, Setting] = {
    "key_bytes": 16,
    "keys": 2_000,
    "skewed": False,
    "draws": 20_000,
    "latency_ms": 1.0,
    "mb_per_s": 100.0,
    "checkpoint_s": 0.1,
    "rare_checkpoint_s": 1_000.0,
    "materialize_s": 0.3,
    "warm_s": 0.2,
    "seconds": 1.5,
}
PACED = SMALL | {"rate": 6_000.0}
"""Whole buffers would take all that the processor has, and tell no more."""
EXPERIMENT = throughput.EXPERIMENTS[0]


def reading(variant: str, directory: Path) -> Reading:
    return throughput.measure_throughput(Trial(PACED, variant, 1, directory))


def test_each_variant_has_the_interval_of_its_setting(tmp_path: Path) -> None:
    frequent, rare = (reading(variant, tmp_path).figures for variant in ("off", "off-rare"))
    assert frequent["checkpoints"] >= 1
    assert frequent["checkpoint_p50_ms"] > 0
    assert rare["checkpoints"] == 0
    assert "checkpoint_p50_ms" not in rare
    assert frequent["uploaded_mb_per_s"] > 0
    assert frequent["backpressured_s"] == 0  # nothing waits for a log that there is not
    assert frequent["checkpoints_failed"] == rare["checkpoints_failed"] == 0


def test_only_a_variant_with_local_copies_leaves_them(tmp_path: Path) -> None:
    for variant in ("on", "on-local", "off-local"):
        directory = tmp_path / variant
        directory.mkdir()
        assert reading(variant, directory).figures["checkpoints"] >= 1
        copies = directory / "copies"
        names = {file.suffix for file in copies.rglob("*") if file.is_file()}
        assert names >= {"on": set(), "on-local": {".seg"}, "off-local": {".sst"}}[variant]
        assert copies.exists() == variant.endswith("-local")


@pytest.mark.parametrize("size", Size)
def test_every_cell_can_form_the_ratios_of_on_against_off(size: Size) -> None:
    found = throughput.cells(size)
    asked = [ratio for ratio in EXPERIMENT.ratios if "local" not in ratio.name]
    assert [ratio.name for ratio in asked] == ["on / off", "on / off-rare"]
    for cell in found:
        assert {name for ratio in asked for name in (ratio.over, ratio.under)} <= set(cell.variants)
        assert cell.settings.keys() == SMALL.keys()
    lengths = {200} if size is Size.QUICK else {16, 200}
    assert {cell.settings["key_bytes"] for cell in found} == lengths


def test_the_full_size_compares_local_copies_in_every_cell() -> None:
    for cell in throughput.cells(Size.FULL):
        assert {"on-local", "off-local"} <= set(cell.variants)
