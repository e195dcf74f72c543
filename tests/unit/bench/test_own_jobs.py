"""A job of the user's own is measured, and two sessions of it are compared."""

import json
from pathlib import Path

import pytest
from click.testing import Result

from tests.support.cli import section as documented
from tests.support.cli import tidelog, undocumented
from tests.unit.bench.test_bench_cli import Inside
from tidelog_bench.session import session
from tidelog_bench.session.records import find, opened, trials

JOB = """
from tidelog import ForeachSink, Job, RateSource

def job():
    job = Job("mine")
    job.source(RateSource(2000)).key_by(lambda n: n % 10).count().sink(ForeachSink(lambda _: None))
    return job
"""
QUICK = ("--set", "seconds=0.5", "--set", "warm_s=0.2", "--set", "latency_ms=1", "--pairs", "1")


@pytest.fixture(autouse=True)
def inside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials take no process of their own."""
    monkeypatch.setattr(session, "Child", Inside)


@pytest.fixture
def job(tmp_path: Path) -> str:
    # A module of a name is imported once.
    path = tmp_path / f"mine_{tmp_path.name}.py"
    path.write_text(JOB)
    return f"{path}:job"


def bench(tmp_path: Path, *arguments: str) -> Result:
    return tidelog("bench", *arguments, "--results", tmp_path / "results")


def test_a_job_is_measured_with_its_settings_and_two_sessions_are_compared(
    tmp_path: Path, job: str
) -> None:
    for interval in ("100ms", "200ms"):
        setting = ("--set", f"checkpoint.interval={interval}")
        result = bench(tmp_path, "run", "--job", job, *QUICK, *setting)
        assert result.exit_code == 0, result.output
    first, second = (path.name for path in sorted((tmp_path / "results").glob("*.jsonl")))
    (trial,) = trials(opened(find(first, tmp_path / "results"))[1])
    assert trial.figures["checkpoints"] > 0 and trial.figures["puts_per_day"] > 0
    shown = bench(tmp_path, "compare", first, second)
    assert shown.exit_code == 0, shown.output
    assert "checkpoint.interval: 100ms -> 200ms" in shown.stdout
    assert "records a second" in shown.stdout and "too few to tell" in shown.stdout
    document = json.loads(bench(tmp_path, "compare", first, second, "--json").stdout)
    (cell,) = document["cells"]
    (changed,) = cell["settings"]
    assert changed == {"name": "checkpoint.interval", "first": "100ms", "second": "200ms"}
    assert undocumented(document, documented("bench compare")) == set()


def test_a_report_of_such_a_session_has_its_job_alone(tmp_path: Path, job: str) -> None:
    bench(tmp_path, "run", "--job", job, *QUICK)
    document = json.loads(bench(tmp_path, "report", "--json").stdout)
    assert [each["name"] for each in document["experiments"]] == ["job"]
    assert f"`tidelog bench run --job {job}`" in bench(tmp_path, "report").stdout


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--set", "checkpoint.intervall=1s"), "checkpoint.interval"),
        (("--set", "latency_ms=slow"), "a number"),
        (("--set", "latency"), "write --set KEY=VALUE"),
        (("--set", "workers=2"), "a trial is one process"),
        (("throughput",), "give no names"),
    ],
)
def test_settings_that_cannot_be_are_refused_before_anything_runs(
    tmp_path: Path, job: str, options: tuple[str, ...], says: str
) -> None:
    result = bench(tmp_path, "run", "--job", job, *options)
    assert result.exit_code == 2 and says in result.stderr, result.output
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("run", "--quick"), "name experiments or groups"),
        (("run", "throughput", "--resume", "latest"), "--resume takes names and options from"),
        (("run", "--set", "a=b", "throughput"), "--set is for --job"),
        (("run", "throughput", "--only", "no=thing"), "`tidelog bench list --json`"),
    ],
)
def test_wrong_usage_is_told_as_such_and_is_no_defect(
    tmp_path: Path, arguments: tuple[str, ...], says: str
) -> None:
    result = bench(tmp_path, *arguments)
    assert result.exit_code == 2 and says in result.stderr, result.output
    assert "tidelog itself" not in result.stderr
