"""`tidelog estimate`, `plan` and `overhead`: tables, JSON, options and errors;
docs/guides/estimate.md shows what they print."""

import json
import re
import shlex
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import keys, lay_out, section, tidelog, undocumented
from tests.support.documentation import ROOT
from tests.support.jobs import filled
from tests.unit.cost.measured.jobs import left_by, windows
from tests.unit.cost.test_prices import OWN
from tidelog.cli.run.run import command as run_command

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
@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("--state-size", "1" + 300 * "0", "the described job; expected rates, sizes and times"),
        ("--parallelism", "1" + 400 * "0", "the described job"),
        ("--bandwidth", 400 * "9", "is no size"),
        ("--keys", 400 * "9", "is no number"),
        ("--checkpoint-interval", 400 * "9" + "s", "is no duration"),
        ("--checkpoint-interval", "0s", "is no duration above 0"),
    ],
    ids=["out of range", "no float", "no size", "no number", "no duration", "no time"],
)
def test_figures_that_no_job_has_are_refused(
    command: str, option: str, value: str, says: str
) -> None:
    result = tidelog(command, *JOB, option, value)
    assert result.exit_code == 2 and says in result.stderr


def test_a_plan_is_a_command_that_runs_as_many_subtasks_as_it_is_for() -> None:
    found = tidelog("plan", *JOB[:-1], "5", "--processes", "2", "--checkpoint-interval", "1000001s")
    assert "--parallelism 3 --checkpoint-interval 1000001s" in found.stdout


@pytest.mark.parametrize("command", ["estimate", "plan"])
def test_every_field_is_documented(command: str) -> None:
    targets = ("--restore", "3s", "--budget", "20USD") if command == "plan" else ()
    result = tidelog(command, *JOB, *targets, "--json")
    document = json.loads(result.stdout)
    text = section(f"{command}\n") + (section("estimate\n") if command == "plan" else "")
    assert len(set(keys(document))) > 25
    assert undocumented(document, text) == set()


@pytest.mark.parametrize("command", ["estimate", "plan"])
def test_a_job_is_a_join_or_has_sessions(command: str) -> None:
    both = ("--join=-1m,5m", "--session", "30s")
    result = tidelog(command, "--writes-per-second", "1k", "--keys", "1M", *both)
    assert result.exit_code == 2 and "one of them" in result.stderr


def test_a_price_book_of_ones_own_is_used_alone(tmp_path: Path) -> None:
    path = tmp_path / "cellar.toml"
    path.write_text(OWN + 'notes = ["The cellar is damp."]\n')
    shown = tidelog("estimate", *JOB, "--prices", path).stdout
    assert "cellar" in shown and "EUR" in shown and "aws" not in shown
    assert "The cellar is damp." in shown


S3 = ("--provider", "aws-s3-standard")


def plan(*options: str) -> str:
    result = tidelog("plan", *JOB, *S3, *options)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_recommendation_is_marked_and_can_be_pasted() -> None:
    shown = plan("--restore", "30s", "--budget", "60USD")
    (marked,) = (line for line in shown.splitlines() if line.endswith("<- recommended"))
    interval = marked.split()[0]
    assert f"--materialize-interval {interval} --replay-target" in shown
    (pasted,) = (line for line in shown.splitlines() if line.startswith("  tidelog run JOB"))
    arguments = pasted.replace("JOB", "wordcount").replace("URL", "out/store").split()[2:]
    # The options are those of `tidelog run`, with values that it takes.
    run_command.make_context("run", arguments)


@pytest.mark.parametrize(
    ("options", "missed"),
    [
        (("--restore", "3s", "--budget", "20USD"), "misses restore by"),
        (("--restore", "8s", "--budget", "55USD"), "misses restore by"),
        (("--latency", "300ms", "--checkpoint-interval", "200ms"), "misses checkpoint by"),
    ],
    ids=["out of reach", "exclude each other", "checkpoints that cannot be so frequent"],
)
def test_targets_that_cannot_be_met_exit_with_1_and_name_what_comes_nearest(
    options: tuple[str, ...], missed: str
) -> None:
    result = tidelog("plan", *JOB, *S3, *options)
    assert result.exit_code == 1
    assert "no settings meet the targets; what comes nearest misses" in result.stdout
    assert missed in result.stdout
    assert result.stdout.count("<- nearest") == 1


def test_json_has_every_candidate_at_every_provider_and_the_decision() -> None:
    arguments = ("--restore", "20s", "--budget", "60USD", "--json")
    document = json.loads(tidelog("plan", *JOB, *arguments).stdout)
    assert document["targets"] == {
        "checkpoint_s": 1.0,
        "restore_s": 20.0,
        "late_s": None,
        "budget": 60.0,
        "currency": "USD",
    }
    found = document["candidates"]
    providers = {book["provider"] for book in document["price_books"]}
    assert {each["bill"]["provider"] for each in found} == providers and len(providers) == 4
    nearest = found[document["nearest"]]
    assert document["met"] is True
    assert nearest["restore_s"] <= 20 and nearest["bill"]["total"] <= 60
    assert max(nearest["misses"].values()) <= 0
    assert found[-1]["materialize_interval_s"] is None


def document(location: Path, *options: str | Path) -> dict[str, Any]:
    result = tidelog("overhead", location, "--engine", "local", "--json", *options)
    assert result.exit_code in (0, 1), result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return lay_out(tmp_path / "store", left_by(windows, 5))


def test_every_field_of_an_overhead_is_documented(store: Path, tmp_path: Path) -> None:
    found = document(store)
    assert found["operators"][-1]["windows"]["ratio"] is not None
    bill = {key for each in found["bills"] for key in each}
    assert undocumented(found["bills"], section("estimate")) & bill == set()
    assert undocumented(found, section("overhead")) - bill == set()
    little = document(lay_out(tmp_path / "little", filled()))
    assert set(keys(little)) <= set(keys(found))


def test_a_store_that_cannot_tell_exits_with_1_and_says_why(tmp_path: Path) -> None:
    result = tidelog("overhead", lay_out(tmp_path, filled()), "--engine", "local")
    assert result.exit_code == 1
    assert "expected two materializations or more" in result.stdout
    assert "Next: let them span 3 materialization intervals: `tidelog run ... --retain N`" in (
        result.stdout
    )
    assert result.stderr == ""


GUIDE = (ROOT / "docs" / "guides" / "estimate.md").read_text()
PRINTED = re.findall(r"^```\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("command", ["estimate", "plan"])
def test_the_example_is_what_is_printed(command: str, tmp_path: Path) -> None:
    at = next(n for n, block in enumerate(PRINTED) if block.startswith(f"tidelog {command} --"))
    arguments = shlex.split(PRINTED[at].replace("\\\n", " "))[1:]
    arguments = [str(tmp_path / a) if a.endswith(".png") else a for a in arguments]
    result = tidelog(*arguments)
    assert result.exit_code == 0, result.output
    printed = result.stdout.splitlines()
    for line in PRINTED[at + 1].splitlines():
        shown = line.removesuffix("...").rstrip()
        assert any(found.startswith(shown) for found in printed), line


SMALL = ("--writes-per-second", "100", "--keys", "1k", *S3)


def strategy(*options: str) -> dict[str, Any]:
    result = tidelog("estimate", *options, "--json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)["strategies"][0]
    return found


def test_workers_have_one_manifest_and_a_log_each_and_processes_a_store_each() -> None:
    busy = ("--writes-per-second", "20k", "--keys", "1M", *S3)
    one = strategy(*busy, "--parallelism", "8")
    workers, processes = strategy(*busy, "--workers", "8"), strategy(*busy, "--processes", "8")
    assert workers["lists_per_day"] == pytest.approx(one["lists_per_day"], rel=0.01)
    assert processes["lists_per_day"] == pytest.approx(8 * one["lists_per_day"], rel=0.05)
    assert one["puts_per_day"] < workers["puts_per_day"] < processes["puts_per_day"]
    totals = [each["bills"][0]["total"] for each in (one, workers, processes)]
    assert totals == sorted(totals) and totals[2] > 1.5 * totals[1]


@pytest.mark.parametrize("window", ["10s", "12s,3s"])
def test_what_windows_write_once_and_delete_is_logged_the_more_the_shorter_they_are(
    window: str,
) -> None:
    changes = [
        strategy(*SMALL, *options)["log"]["changes_per_s"]
        for options in ((), ("--window", "10h"), ("--window", window))
    ]
    assert changes[0] == pytest.approx(changes[1], rel=0.02)
    assert changes[2] > 1.5 * changes[1]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--delay", "5s"), "--delay; expected --join, --session or --window"),
        (("--window", "10s", "--session", "5s"), "--session and --window; expected one of them"),
        (("--window", "1s,10s"), "is no window"),
    ],
)
def test_options_that_say_nothing_together_are_refused(options: tuple[str, ...], says: str) -> None:
    result = tidelog("estimate", *SMALL, *options)
    assert result.exit_code == 2 and says in result.stderr, result.output


def test_an_interval_below_that_of_flushes_is_estimated_as_what_becomes_of_it() -> None:
    found = strategy(*SMALL, "--materialize-interval", "700ms")
    assert found["materialize_s"] == pytest.approx(1.4)
    assert "every 1.4 s, not every 0.7 s" in found["warnings"][0]
    assert strategy(*SMALL, "--materialize-interval", "2s")["warnings"] == []


@pytest.mark.parametrize("text", ["4KB", "4kB", "4 KB", "4000"])
def test_a_size_in_thousands_is_written_as_one_likes(text: str) -> None:
    shown = json.loads(tidelog("estimate", *SMALL, "--value-bytes", text, "--json").stdout)
    assert shown["workload"]["value_bytes"] == 4_000


def test_two_books_of_one_name_are_refused_and_what_a_book_does_not_price_is_said(
    tmp_path: Path,
) -> None:
    first, second = tmp_path / "a.toml", tmp_path / "b.toml"
    first.write_text(OWN)
    second.write_text(OWN.replace("0.01", "0.02"))
    result = tidelog("estimate", *JOB, "--prices", first, "--prices", second)
    assert result.exit_code == 2
    assert "'cellar'; expected one; found 2 files" in result.stderr and "cellar-2" in result.stderr
    said = "the prices of cellar have no upload_gb, retrieval_gb, egress_gb"
    assert said in tidelog("estimate", *JOB, "--prices", first, "--egress").stdout
    whole = OWN + "upload_gb = 0\nretrieval_gb = 0\negress_gb = 0\n"
    first.write_text(whole)
    assert "have no" not in tidelog("estimate", *JOB, "--prices", first, "--egress").stdout


def test_the_bill_of_an_overhead_has_a_list_for_each_checkpoint(store: Path) -> None:
    found = document(store, *S3)
    manifests = next(each for each in found["objects"] if each["kind"] == "manifest")
    (bill,) = found["bills"]
    assert bill["list"] == pytest.approx(manifests["per_day"] * 365 / 12 / 1000 * 0.005, rel=0.01)
