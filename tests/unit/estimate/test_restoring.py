"""Restore times, against those that were recorded behind a link."""

import json
from pathlib import Path
from typing import Any

import pytest

from tidelog.estimate.restoring import Fetch, reads, restore_s
from tidelog.estimate.settings import Link, Settings

RESULTS = Path(__file__).parents[3] / "benchmarks" / "results" / "decisions" / "restore.jsonl"


def recorded() -> list[tuple[str, dict[str, Any]]]:
    """(what, run) of every restore behind a link."""
    found = []
    for line in RESULTS.read_text().splitlines():
        record = json.loads(line)
        link = record["settings"].get("link")
        if link is not None:
            assert (link["latency_ms"], link["mb_per_s"]) == (30, 50)
            for variant, runs in record["result"]["runs"].items():
                what = f"{record['date'][:16]} {record['result']['job']} {variant}"
                found += [(f"{what} {at}", run) for at, run in enumerate(runs)]
    return found


RUNS = recorded()


@pytest.mark.parametrize("run", [run for _, run in RUNS], ids=[what for what, _ in RUNS])
def test_a_recorded_restore_is_estimated(run: dict[str, Any]) -> None:
    settings = Settings(link=Link(bytes_per_s=50e6, latency_s=0.03))
    megabytes = run["fetched_mb"]
    fetch = Fetch(
        slots=3,
        descriptors=2,
        parts=megabytes / 8,
        bytes=megabytes * 1e6,
        changes=run["replayed_changes"],
    )
    assert 0.75 <= restore_s(fetch, settings) / run["restore_s"] <= 1.5


def test_enough_restores_were_recorded() -> None:
    assert len(RUNS) >= 12


def test_more_processes_ask_for_more_and_take_as_long() -> None:
    fetch = Fetch(slots=3, descriptors=4, parts=100, bytes=1e9, changes=1e6)
    one, four = Settings(), Settings(parallelism=4, processes=4)
    assert reads(fetch, four).gets == pytest.approx(4 * reads(fetch, one).gets)
    assert restore_s(fetch, four) == restore_s(fetch, one)
