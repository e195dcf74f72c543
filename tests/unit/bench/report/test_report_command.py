"""`tidelog bench report`: the page and its JSON."""

import json
from pathlib import Path

import pytest

from tests.support.bench_sessions import five, session
from tests.support.bench_toy import experiment
from tests.support.cli import tidelog
from tidelog_bench import experiments as registry
from tidelog_bench.session.records import Record, append

ROOT = Path(__file__).parents[4]


@pytest.fixture(autouse=True)
def toys(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """The registry holds one experiment."""
    if "recorded" not in request.fixturenames:
        found = {"durations": experiment()}
        monkeypatch.setattr(registry, "experiments", lambda: found)
        monkeypatch.setattr("tidelog_bench.report.answer.experiments", lambda: found)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    record(tmp_path, "20260101T000000Z-standard", [3] * 5)
    record(tmp_path, "20260202T000000Z-standard", [5] * 5)
    return tmp_path


def record(directory: Path, name: str, off: list[float]) -> None:
    started = f"{name[:4]}-{name[4:6]}-{name[6:8]}T00:00:00+00:00"
    records: list[Record] = [session(session=name, started=started, names=["durations", "gone"])]
    for each in [*records, *five([1] * 5, off)]:
        append(directory / f"{name}.jsonl", each)


def test_the_newest_session_becomes_a_page(results: Path, tmp_path: Path) -> None:
    printed = tidelog("bench", "report", "--results", results)
    assert printed.exit_code == 0, printed.output
    assert "20260202T000000Z-standard" in printed.stdout
    assert "20260101T000000Z-standard" not in printed.stdout
    target = tmp_path / "page.md"
    assert tidelog("bench", "report", "--results", results, "--output", target).exit_code == 0
    assert target.read_text() == printed.stdout
    target = tmp_path / "no" / "page.md"
    result = tidelog("bench", "report", "--results", results, "--output", target)
    assert result.exit_code == 2
    assert "choose another path" in result.stderr


@pytest.mark.parametrize(
    "path", sorted((ROOT / "benchmarks" / "results").glob("*.jsonl")), ids=lambda path: path.stem
)
def test_recorded_sessions_of_earlier_versions_have_a_report(path: Path, recorded: None) -> None:
    result = tidelog("bench", "report", path, "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["experiments"] or document["unknown"]
    for found in document["experiments"]:
        assert found["figures"] and found["cells"][0]["ratios"]


@pytest.fixture
def recorded() -> None:
    """The registry is the real one."""


def test_every_json_field_is_documented(results: Path) -> None:
    result = tidelog("bench", "report", "--results", results, "--json")
    document = (ROOT / "docs" / "reference" / "cli-json.md").read_text()
    section = document[document.index("## tidelog bench report") :]
    (found,) = json.loads(result.stdout)["experiments"]
    keys = {*found, *found["cells"][0], *found["cells"][0]["ratios"][0]}
    assert {key for key in keys if f"`{key}`" not in section} == set()
