"""The measurement behind restore-phases, in its smallest cells."""

import asyncio
from pathlib import Path

import pytest

from tidelog_bench.embedded.restore_fixture import fill, log_behind
from tidelog_bench.experiments import restore_phases
from tidelog_bench.measurement import Setting, Size, Trial

STORE: dict[str, Setting] = {"latency_ms": 1.0, "mb_per_s": 100.0, "checkpoint_s": 0.05}
WORDS = STORE | {"job": "wordcount", "key_bytes": 200, "keys": 3_000, "log_records": 4_000}
WINDOW = STORE | {"job": "window", "slides": 5, "window_records": 500, "log_records": 250}


def figures(settings: dict[str, Setting], variant: str, directory: Path) -> dict[str, float]:
    reading = restore_phases.measure_restore(Trial(settings, variant, 1, directory))
    return dict(reading.figures)


def check_times(found: dict[str, float]) -> None:
    assert found["restore_s"] <= found["running_s"] <= found["first_record_s"]
    parts = found["takeover_s"] + found["restore_s"] + found["start_s"]
    assert parts == pytest.approx(found["running_s"])
    for phase in ("download_s", "open_s", "fetch_log_s", "replay_s"):
        assert 0 <= found[phase] <= found["restore_s"]


@pytest.mark.parametrize(("settings", "least_table_mb"), [(WORDS, 0.4), (WINDOW, 0.05)])
def test_with_the_log_a_restore_reads_a_table_and_replays_what_is_behind_it(
    tmp_path: Path, settings: dict[str, Setting], least_table_mb: float
) -> None:
    found = figures(settings, "on", tmp_path)
    check_times(found)
    # Words are drawn at random among the keys: some come twice, and a flush counts them once.
    assert found["replayed_changes"] >= int(str(settings["log_records"])) * 0.5
    assert found["table_mb"] > least_table_mb
    assert found["downloaded_mb"] >= found["state_mb"] > found["table_mb"]
    assert min(found["download_s"], found["fetch_log_s"], found["replay_s"]) > 0


def test_without_the_log_there_is_only_a_table(tmp_path: Path) -> None:
    found = figures(WORDS, "off", tmp_path)
    check_times(found)
    assert found["replayed_changes"] == found["fetch_log_s"] == 0
    assert found["downloaded_mb"] >= found["state_mb"] == found["table_mb"] > 0.4


def test_with_local_copies_the_state_does_not_come_from_the_store(tmp_path: Path) -> None:
    found = figures(WORDS, "on-local", tmp_path)
    check_times(found)
    assert found["downloaded_mb"] < 0.1 < 0.4 < found["state_mb"]
    assert found["replayed_changes"] > 0


@pytest.mark.parametrize("variant", ["on", "off"])
def test_what_is_left_to_restore_is_the_log_of_the_last_run_alone(
    tmp_path: Path, variant: str
) -> None:
    trial = Trial(WORDS | {"keys": 20_000, "log_records": 1}, variant, 1, tmp_path)
    fill(trial)
    left = asyncio.run(log_behind(tmp_path / "store"))
    # One buffer of 2,048 words, and not the 20,000 that came before.
    assert left == 0 if variant == "off" else 0 < left <= 2_048


@pytest.mark.parametrize("size", list(Size)[1:])
def test_each_size_but_the_quick_one_has_words_and_windows(size: Size) -> None:
    jobs = {
        (c.settings["job"], c.settings.get("key_bytes", c.settings.get("slides")))
        for c in restore_phases.cells(size)
    }
    fewer_slides = {("window", 5)} if size is Size.FULL else set()
    assert jobs == {("wordcount", 16), ("wordcount", 200), ("window", 10)} | fewer_slides
