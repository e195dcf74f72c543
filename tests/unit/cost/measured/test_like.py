"""What an estimate takes from the store of a job is what the job does."""

import json
from pathlib import Path

import pytest

from tests.support.cli import lay_out, tidelog
from tests.support.jobs import filled
from tests.unit.cost.measured.jobs import aggregate, left_by


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return lay_out(tmp_path / "store", left_by(aggregate))


def test_rates_sizes_and_settings_are_those_of_the_job(store: Path) -> None:
    measured = json.loads(tidelog("overhead", store, "--engine", "local", "--json").stdout)
    document = json.loads(tidelog("estimate", "--like", store, "--json").stdout)
    keyed = measured["operators"][-1]
    workload, settings = document["workload"], document["settings"]
    estimated = document["strategies"][0]["log"]
    assert settings["parallelism"] == len(keyed["subtasks"])
    assert settings["checkpoint_interval_s"] == pytest.approx(measured["checkpoint_s"])
    assert workload["writes_per_s"] >= keyed["changes_per_s"]
    assert estimated["changes_per_s"] == pytest.approx(keyed["changes_per_s"], rel=0.2)
    stored, raw = keyed["stored_bytes_per_change"], keyed["raw_bytes_per_change"]
    assert workload["compression"] == pytest.approx(min(1.0, stored / raw), rel=0.01)


def test_an_option_wins_over_what_the_store_says(store: Path) -> None:
    options = ("--writes-per-second", "7", "--checkpoint-interval", "9s", "--json")
    document = json.loads(tidelog("estimate", "--like", store, *options).stdout)
    assert document["workload"]["writes_per_s"] == 7
    assert document["settings"]["checkpoint_interval_s"] == 9


def test_a_store_that_tells_no_rate_is_refused(tmp_path: Path) -> None:
    objects = dict(filled())
    newest = max(name for name in objects if name.startswith("checkpoints/"))
    kept = {
        name: data
        for name, data in objects.items()
        if not name.startswith("checkpoints/") or name in (newest, "checkpoints/00000004.json")
    }
    result = tidelog("estimate", "--like", lay_out(tmp_path, kept))
    assert result.exit_code == 2 and "two checkpoints in a row" in result.stderr, result.output
