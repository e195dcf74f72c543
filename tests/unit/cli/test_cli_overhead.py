"""`tidelog overhead` on stores in directories: tables, JSON, options and errors."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import files, lay_out, tidelog
from tests.support.jobs import filled
from tests.unit.cost.measured.jobs import INTERVAL_S, windowed
from tidelog.cli.spark import engine

DOCUMENT = (Path(__file__).parents[3] / "docs" / "reference" / "cli-json.md").read_text()
SECTION = DOCUMENT[DOCUMENT.index("## tidelog overhead") :].partition("\n## ")[0]
ESTIMATE = DOCUMENT[DOCUMENT.index("## tidelog estimate") :].partition("\n## ")[0]


def document(location: Path, *options: str | Path) -> dict[str, Any]:
    result = tidelog("overhead", location, "--engine", "local", "--json", *options)
    assert result.exit_code in (0, 1), result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def keys(found: object) -> Iterator[str]:
    if isinstance(found, Mapping):
        yield from found
        found = list(found.values())
    if isinstance(found, list):
        for item in found:
            yield from keys(item)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return lay_out(tmp_path / "store", windowed(5))


def test_every_field_is_documented(store: Path, tmp_path: Path) -> None:
    found = document(store)
    assert found["operators"][-1]["windows"]["ratio"] is not None
    bill = {key for each in found["bills"] for key in each}
    assert {key for key in bill if f"`{key}`" not in ESTIMATE} == set()
    assert {key for key in keys(found) if f"`{key}`" not in SECTION} - bill == set()
    little = document(lay_out(tmp_path / "little", filled()))
    assert set(keys(little)) <= set(keys(found))


def test_people_get_a_table_the_rule_for_windows_and_the_bill(store: Path) -> None:
    result = tidelog("overhead", store, "--engine", "local", "--provider", "aws-s3-standard")
    assert result.exit_code == 0
    row = next(line for line in result.stdout.splitlines() if line.startswith("window "))
    window = next(each for each in document(store)["operators"] if each["id"] == "window")
    # A materialization gives way to a checkpoint, so it is not exactly on time.
    assert window["interval_s"] == pytest.approx(INTERVAL_S, abs=0.25)
    assert f"every {window['interval_s']:.1f} s" in row
    assert "2 x (slices + timers) x bytes x interval = " in result.stdout
    assert "updates per logged change" in result.stdout
    assert "space amplification: " in result.stdout
    assert "aws-s3-standard  USD" in result.stdout
    assert "prices: aws-s3-standard is " in result.stdout


def test_nothing_is_written(store: Path) -> None:
    document(store)
    assert files(store) == windowed(5)


def test_a_store_that_cannot_tell_exits_with_1_and_says_why(tmp_path: Path) -> None:
    result = tidelog("overhead", lay_out(tmp_path, filled()), "--engine", "local")
    assert result.exit_code == 1
    assert "expected two materializations or more" in result.stdout
    assert "Next: let them span 3 materialization intervals: `tidelog run ... --retain N`" in (
        result.stdout
    )
    assert result.stderr == ""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--master", "local[2]"], "--engine spark with them"),
        (["--conf", "spark.executor.memory=1g"], "--engine spark with them"),
        (["--conf", "nonsense"], "NAME=VALUE"),
        (["--provider", "nobody"], "no price book of that name"),
    ],
)
def test_wrong_options_exit_with_2(options: list[str], message: str, store: Path) -> None:
    result = tidelog("overhead", store, "--engine", "local", *options)
    assert result.exit_code == 2
    assert message in result.stderr


def test_without_spark_the_engine_is_the_local_one(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "has_spark", lambda: False)
    result = tidelog("overhead", store, "--json")
    assert json.loads(result.stdout)["engine"] == "local"


def test_a_store_in_memory_is_not_for_spark() -> None:
    result = tidelog("overhead", "memory://x", "--engine", "spark")
    assert result.exit_code == 2
    assert "use --engine local" in result.stderr


def test_places_without_a_job_are_refused(tmp_path: Path) -> None:
    empty = tidelog("overhead", tmp_path / "typo", "--engine", "local")
    assert empty.exit_code == 1 and "Next: check the URL" in empty.stderr
    query = lay_out(tmp_path / "query", {"commits/0": b"v1\n{}"})
    refused = tidelog("overhead", query, "--engine", "local")
    assert refused.exit_code == 2 and "tidelog spark checkpoints" in refused.stderr


def test_the_command_explains_itself() -> None:
    shown = tidelog("overhead", "--help").stdout
    for option in ("--engine", "--provider", "--json", "--debug"):
        assert option in shown
