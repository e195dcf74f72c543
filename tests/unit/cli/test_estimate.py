"""`tidelog estimate`: what it prints, and what it refuses."""

import json
from datetime import date
from pathlib import Path

import pytest

from tests.support.cli import tidelog
from tests.unit.cli.test_cli_contract import DOCUMENT, keys
from tests.unit.cost.test_prices import OWN

JOB = ("--writes-per-second", "20k", "--keys", "5M", "--skew", "1", "--parallelism", "4")
STRATEGIES = ["changelog", "incremental"]


@pytest.fixture(autouse=True)
def on_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    """The age of prices does not depend on when the tests run."""
    monkeypatch.setattr("tidelog.cli.estimate.prices.today", lambda: date(2026, 11, 1))


def test_json_has_the_figures_of_the_table_and_their_parts() -> None:
    result = tidelog("estimate", *JOB, "--provider", "aws-s3-standard", "--json")
    document = json.loads(result.stdout)
    assert [one["strategy"] for one in document["strategies"]] == STRATEGIES
    for strategy in document["strategies"]:
        assert sum(kind["stored_bytes"] for kind in strategy["objects"]) == pytest.approx(
            strategy["stored_bytes"]
        )
        assert sum(kind["per_day"] for kind in strategy["objects"]) == pytest.approx(
            strategy["puts_per_day"]
        )
        (bill,) = strategy["bills"]
        lines = ("storage", "put", "list", "get", "delete", "transfer")
        assert sum(bill[line] for line in lines) == pytest.approx(bill["total"])
    assert document["workload"]["keys"] == 5_000_000
    assert document["settings"]["materialize_interval_s"] == 60
    (book,) = document["price_books"]
    assert (book["as_of"], book["expired"]) == ("2026-03-13", False)


@pytest.mark.parametrize("command", ["estimate", "plan"])
def test_every_field_is_documented(command: str) -> None:
    targets = ("--restore", "3s", "--budget", "20USD") if command == "plan" else ()
    result = tidelog(command, *JOB, *targets, "--json")
    start = DOCUMENT.index(f"## tidelog {command}\n")
    section = DOCUMENT[start : DOCUMENT.index("\n## ", start + 1)]
    if command == "plan":
        section += DOCUMENT[DOCUMENT.index("## tidelog estimate\n") :]
    found = set(keys(json.loads(result.stdout)))
    assert len(found) > 25
    assert {key for key in found if f"`{key}`" not in section} == set()


def test_a_price_book_of_ones_own_is_used_alone(tmp_path: Path) -> None:
    path = tmp_path / "cellar.toml"
    path.write_text(OWN + 'notes = ["The cellar is damp."]\n')
    shown = tidelog("estimate", *JOB, "--prices", path).stdout
    assert "cellar" in shown and "EUR" in shown and "aws" not in shown
    assert "The cellar is damp." in shown
