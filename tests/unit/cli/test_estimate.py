"""`tidelog estimate`: what it prints, and what it refuses."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path

import click
import pytest

from tests.support.cli import tidelog
from tests.unit.cli.test_cli_contract import DOCUMENT, keys
from tests.unit.cost.test_prices import OWN
from tidelog.cli.estimate.plan import money
from tidelog.cli.values import count, duration_text, latency, short, span, to_bytes
from tidelog.cost.plan import Money

JOB = ("--writes-per-second", "20k", "--keys", "5M", "--skew", "1", "--parallelism", "4")
STRATEGIES = ["changelog", "incremental"]


@pytest.fixture(autouse=True)
def on_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    """The age of prices does not depend on when the tests run."""
    monkeypatch.setattr("tidelog.cli.estimate.prices.today", lambda: date(2026, 11, 1))


@pytest.mark.parametrize("command", ["estimate", "plan"])
def test_the_commands_explain_themselves(command: str) -> None:
    shown = tidelog(command, "--help").stdout
    for option in ("--writes-per-second", "--prices", "--provider", "--json", "--debug"):
        assert option in shown


def test_all_strategies_stand_side_by_side_with_all_providers() -> None:
    result = tidelog("estimate", *JOB)
    assert result.exit_code == 0
    usage, cost = result.stdout.split("\n\n")[:2]
    assert [line.split()[0] for line in usage.splitlines()[1:]] == STRATEGIES
    assert cost.splitlines()[0].split()[-2:] == STRATEGIES
    rows = {line.split()[0]: line.split()[1:] for line in cost.splitlines()[1:]}
    assert rows["aliyun-oss-standard"][0] == "CNY"
    assert rows["aws-s3-standard"][0] == "USD"
    assert len(rows) == 5 and all(len(row) == 3 for row in rows.values())


def test_prices_that_are_out_of_date_are_said_to_be() -> None:
    shown = tidelog("estimate", *JOB).stdout
    (old,) = (line for line in shown.splitlines() if "prices: aws-s3-express" in line)
    assert old.endswith("as of 2025-04-10, out of date: pass your own with --prices")
    (new,) = (line for line in shown.splitlines() if "prices: gcp-storage-standard" in line)
    assert "out of date" not in new
    document = json.loads(tidelog("estimate", *JOB, "--json").stdout)
    expected = "the prices of aws-s3-express are of 2025-04-10"
    assert any(text.startswith(expected) for text in document["warnings"])


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


def test_settings_change_the_figures() -> None:
    def total(*options: str) -> float:
        arguments = ("--provider", "aws-s3-standard", "--json")
        document = json.loads(tidelog("estimate", *JOB, *arguments, *options).stdout)
        found: float = document["strategies"][0]["bills"][0]["total"]
        return found

    assert total("--checkpoint-interval", "10s") < 0.7 * total()
    assert total("--materialize-interval", "5m", "--replay-target", "1m") < total()
    assert total("--egress", "--restores-per-month", "100") > total()


def test_the_state_s_size_stands_for_the_number_of_keys() -> None:
    arguments = ("--writes-per-second", "100", "--state-size", "1160MB", "--json")
    document = json.loads(tidelog("estimate", *arguments).stdout)
    assert document["workload"]["keys"] == 10_000_000
    assert document["workload"]["state_bytes"] == 1_160_000_000


def test_a_price_book_of_ones_own_is_used_alone(tmp_path: Path) -> None:
    path = tmp_path / "cellar.toml"
    path.write_text(OWN + 'notes = ["The cellar is damp."]\n')
    shown = tidelog("estimate", *JOB, "--prices", path).stdout
    assert "cellar" in shown and "EUR" in shown and "aws" not in shown
    assert "The cellar is damp." in shown


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--writes-per-second", "100"), "--keys"),
        ((*JOB, "--provider", "ibm"), "ibm"),
        ((*JOB, "--prices", "none.toml"), "none.toml"),
        ((*JOB, "--compression", "2"), "compression"),
        ((*JOB, "--processes", "9"), "parallelism"),
        ((*JOB, "--skew", "9"), "skew"),
        ((*JOB, "--skew", "nan"), "skew"),
        ((*JOB, "--bandwidth", "0"), "bandwidth"),
        ((*JOB, "--restores-per-month", "inf"), "restores a month"),
        (("--writes-per-second", "0", "--keys", "5"), "write rate"),
        (("--writes-per-second", "5", "--keys", "0"), "number of keys"),
    ],
)
@pytest.mark.parametrize("command", ["estimate", "plan"])
def test_a_wrong_option_exits_with_2_and_says_what_to_do(
    command: str, arguments: tuple[str, ...], said: str
) -> None:
    result = tidelog(command, *arguments)
    assert result.exit_code == 2
    assert said in result.stderr and "Next: " in result.stderr
    assert result.stdout == ""


def test_neither_command_loads_a_heavy_library(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "from click.testing import CliRunner\n"
        "from tidelog.cli import main\n"
        f"arguments = ['plan', *{JOB!r}]\n"
        "assert CliRunner().invoke(main, arguments).exit_code == 0\n"
        "print(sorted({'matplotlib', 'numpy', 'pyspark'} & set(sys.modules)))\n"
    )
    environment = os.environ | {"TIDELOG_CACHE": str(tmp_path)}
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=True, env=environment
    )
    assert run.stdout.decode().strip() == "[]"


@pytest.mark.parametrize(
    ("read", "texts", "refused"),
    [
        (count, {"200": 200, "20k": 2e4, "1.5M": 1.5e6, "2G": 2e9}, ("20x", "-1")),
        (to_bytes, {"200": 200, "2kB": 2_000, "2GiB": 2 * 2**30, "1Ki": 1_024}, ("2  GB", "GB")),
        (latency, {"0": 0, "0ms": 0, "30ms": 0.03, "1s": 1}, ("1",)),
        (money, {"200 CNY": Money(200, "CNY"), "19.90EUR": Money(19.9, "EUR")}, ("200", "200usd")),
    ],
)
def test_values_are_read_with_their_units(
    read: Callable[[str], object], texts: dict[str, object], refused: tuple[str, ...]
) -> None:
    assert {text: read(text) for text in texts} == texts
    for text in refused:
        with pytest.raises(click.BadParameter):
            read(text)


@pytest.mark.parametrize(
    ("show", "texts"),
    [
        (short, {0.5: "0.5", 99: "99.0", 100: "100", 1_234: "1.2 k", 5_600_000: "5.6 M"}),
        (span, {0.071: "0.07 s", 29.74: "29.7 s", 120: "2.0 min", 11_520: "3.2 h"}),
        (
            duration_text,
            {0.5: "500ms", 1.5: "1.5s", 60: "1m", 70: "70s", 90: "1.5m", 86_400: "24h"},
        ),
    ],
)
def test_numbers_are_short_for_people(
    show: Callable[[float], str], texts: dict[float, str]
) -> None:
    assert {number: show(number) for number in texts} == texts
