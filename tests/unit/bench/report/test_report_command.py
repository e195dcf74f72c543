"""`tidelog bench report`."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.bench_sessions import experiment as made
from tests.support.bench_sessions import five, session
from tests.support.cli import tidelog
from tidelog_bench import experiments as registry
from tidelog_bench.session.records import Record, append

DOCUMENT = (Path(__file__).parents[4] / "docs" / "reference" / "cli-json.md").read_text()
USER_FIELDS = {
    *("cpu", "cores", "memory_gb", "system", "python", "tidelog"),
    *("job", "key_bytes", "latency_ms"),
}


@pytest.fixture(autouse=True)
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    """The registry holds one experiment."""
    found = {"durations": made()}
    monkeypatch.setattr(registry, "experiments", lambda: found)
    monkeypatch.setattr("tidelog_bench.report.chapter.experiments", lambda: found)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    record(tmp_path, "20260101T000000Z-standard", [3] * 5)
    record(tmp_path, "20260202T000000Z-standard", [5] * 5)
    return tmp_path


def record(directory: Path, name: str, off: list[float]) -> None:
    started = f"{name[:4]}-{name[4:6]}-{name[6:8]}T00:00:00+00:00"
    names = ["durations", "gone"]
    records: list[Record] = [session(session=name, started=started, names=names)]
    for each in [*records, *five([1] * 5, off)]:
        append(directory / f"{name}.jsonl", each)


def keys(document: object) -> Iterator[str]:
    if isinstance(document, dict):
        for key, value in document.items():
            yield key
            yield from keys(value)
    elif isinstance(document, list):
        for item in document:
            yield from keys(item)


def test_the_newest_session_becomes_a_page(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib", reason="plots need matplotlib")
    monkeypatch.chdir(tmp_path)
    result = tidelog("bench", "report", "--results", results)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("report.html: 0.")
    text = (tmp_path / "report.html").read_text()
    assert "20260202T000000Z-standard" in text
    assert "20260101T000000Z-standard" not in text
    assert "0.2x" in text


def test_named_sessions_are_told_with_the_newest_answer(results: Path) -> None:
    result = tidelog("bench", "report", "20260202", "20260101", "--results", results, "--json")
    document = json.loads(result.stdout)
    assert [told["session"][:8] for told in document["sessions"]] == ["20260202", "20260101"]
    (found,) = document["experiments"]
    assert found["session"].startswith("20260202")
    assert found["headline"] == {
        "figure": "p99_ms",
        "ratio": "on / off",
        "median": 0.2,
        "min": 0.2,
        "max": 0.2,
        "verdicts": ["better"],
    }
    assert document["unknown"] == ["gone"]
    assert not (results / "report.html").exists()


def test_the_summary_is_printed_on_request_and_writes_nothing(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = tidelog("bench", "report", "latest~1", "--terminal", "--results", results)
    lines = result.stdout.splitlines()
    assert lines[0] == "session 20260101T000000Z-standard, 5 pairs, seed 7"
    assert any(line.split() == ["duration", "p99", "ms", "1", "3", "0.333x*"] for line in lines)
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize("shown", ["--json", "--terminal", "--output"])
def test_a_session_of_an_experiment_that_was_removed_has_a_report(
    tmp_path: Path, shown: str
) -> None:
    if shown == "--output":
        pytest.importorskip("matplotlib", reason="plots need matplotlib")
    old = tmp_path / "old.jsonl"
    for each in [session(session="old", names=["gone"]), *five([1] * 5, [3] * 5)]:
        append(old, each)
    target = [tmp_path / "page.html"] if shown == "--output" else []
    result = tidelog("bench", "report", old, shown, *target)
    assert result.exit_code == 0, result.output
    if shown == "--json":
        document = json.loads(result.stdout)
        assert (document["experiments"], document["unknown"]) == ([], ["gone"])
    if target:
        assert "gone: not known to this version." in target[0].read_text()


def test_a_session_that_is_not_there_and_a_file_that_cannot_be_written_are_errors(
    results: Path, tmp_path: Path
) -> None:
    result = tidelog("bench", "report", "2027", "--results", results)
    assert result.exit_code == 2
    assert "session 2027" in result.stderr
    pytest.importorskip("matplotlib", reason="plots need matplotlib")
    target = tmp_path / "no" / "report.html"
    result = tidelog("bench", "report", "--results", results, "--output", target)
    assert result.exit_code == 2
    assert "choose another path" in result.stderr


def test_every_json_field_is_documented(results: Path) -> None:
    result = tidelog("bench", "report", "--results", results, "--json")
    found = set(keys(json.loads(result.stdout))) - USER_FIELDS
    assert {"medians", "ratios", "published", "missing"} <= found
    assert {key for key in found if f"`{key}`" not in DOCUMENT} == set()
