"""`tidelog plan`: a recommendation with its reasons, or the obstacle."""

import json
from datetime import date

import pytest
from click.testing import CliRunner

from tests.support.cli import tidelog
from tidelog.cli import main
from tidelog.cli.run.run import command as run_command

JOB = ("--writes-per-second", "20k", "--keys", "5M", "--skew", "1", "--parallelism", "4")
S3 = ("--provider", "aws-s3-standard")


@pytest.fixture(autouse=True)
def on_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    """The age of prices does not depend on when the tests run."""
    monkeypatch.setattr("tidelog.cli.estimate.prices.today", lambda: date(2026, 11, 1))


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


def test_the_target_that_binds_is_named_with_what_it_costs() -> None:
    shown = plan("--restore", "20s", "--budget", "60USD")
    assert "--restore 20s binds: without it" in shown
    assert "--budget" not in shown.split("recommended: ")[1].split("prices:")[0]
    assert "no target binds" in plan()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        pytest.param(
            ("--restore", "3s", "--budget", "20USD"),
            (
                "no settings meet the targets at aws-s3-standard",
                "--restore 3s cannot be met: the least is",
                "--budget 20.00 USD cannot be met: the least is",
                "PUT requests being",
                "a longer --checkpoint-interval lowers it",
                "nearest: ",
                "misses restore by",
            ),
            id="out of reach",
        ),
        pytest.param(
            ("--restore", "8s", "--budget", "55USD"),
            (
                "--restore 8s excludes the other targets; it would take",
                "--budget 55.00 USD excludes the other targets; it would take",
            ),
            id="exclude each other",
        ),
        pytest.param(
            ("--latency", "300ms", "--checkpoint-interval", "200ms"),
            ("--checkpoint-interval 200ms cannot be met: a checkpoint takes at least",),
            id="checkpoints that cannot be so frequent",
        ),
    ],
)
def test_targets_that_cannot_be_met_exit_with_1_and_name_the_obstacle(
    options: tuple[str, ...], said: tuple[str, ...]
) -> None:
    result = tidelog("plan", *JOB, *S3, *options)
    assert result.exit_code == 1
    for text in said:
        assert text in result.stdout


def test_a_budget_in_yuan_is_compared_with_prices_in_yuan_only() -> None:
    result = tidelog("plan", *JOB, "--checkpoint-interval", "10s", "--budget", "200CNY")
    assert result.exit_code == 0
    assert "aliyun-oss-standard, amounts in CNY a month" in result.stdout
    assert "left out, because the budget is in CNY: aws-s3-express (USD)" in result.stdout
    assert "USD a month" not in result.stdout


def test_a_budget_without_prices_in_its_currency_is_refused() -> None:
    result = tidelog("plan", *JOB, "--budget", "200EUR")
    assert result.exit_code == 2
    assert "CNY, USD" in result.stderr


def test_several_providers_are_compared_and_one_is_shown() -> None:
    shown = tidelog("plan", *JOB, "--restore", "30s").stdout
    table = shown.split("\n\n")[0]
    assert len(table.splitlines()) == 1 + 5
    assert "meets the targets" in table
    assert shown.count("<- recommended") == 1


def test_json_has_every_candidate_and_the_decision() -> None:
    arguments = ("--restore", "20s", "--budget", "60USD", "--json")
    document = json.loads(tidelog("plan", *JOB, *S3, *arguments).stdout)
    assert document["targets"] == {
        "checkpoint_s": 1.0,
        "restore_s": 20.0,
        "budget": 60.0,
        "currency": "USD",
    }
    (one,) = document["plans"]
    assert one["met"] is True and one["obstacles"] == []
    nearest = one["candidates"][one["nearest"]["candidate"]]
    assert nearest == one["nearest"]
    assert nearest["restore_s"] <= 20 and nearest["bill"]["total"] <= 60
    assert max(nearest["misses"].values()) <= 0
    (binding,) = one["bindings"]
    instead = one["candidates"][binding["instead"]]
    assert binding["target"] == "restore" and instead["restore_s"] > 20
    assert one["candidates"][-1]["materialize_interval_s"] is None


def test_wrong_values_are_refused_by_the_command_line() -> None:
    for arguments in (("--budget", "200"), ("--restore", "30"), ("--keys", "many")):
        assert CliRunner().invoke(main, ["plan", *JOB, *arguments]).exit_code == 2
