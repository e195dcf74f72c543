"""`tidelog plan`: a recommendation or what comes nearest."""

import json
from datetime import date

import pytest

from tests.support.cli import tidelog
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
