"""`tidelog bench report`, and the summary on a terminal."""

import json
from pathlib import Path

import pytest

from tests.support.bench_sessions import cell, experiment, five, loaded, pair, session, trial
from tests.support.cli import tidelog
from tidelog_bench import experiments as registry
from tidelog_bench.experiment import Figure
from tidelog_bench.report.answer import answers
from tidelog_bench.report.terminal import WIDTH, summary
from tidelog_bench.session.records import FailureRecord, Record, SkipRecord, append

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


def test_the_newest_session_becomes_a_page(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib", reason="plots need matplotlib")
    monkeypatch.chdir(tmp_path)
    result = tidelog("bench", "report", "--results", results)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("report.html: 0.")
    text = (tmp_path / "report.html").read_text()
    assert "20260202T000000Z-standard" in text and "20260101T000000Z-standard" not in text
    target = tmp_path / "no" / "report.html"
    result = tidelog("bench", "report", "--results", results, "--output", target)
    assert result.exit_code == 2
    assert "choose another path" in result.stderr


def test_of_named_sessions_the_newest_answer_is_taken(results: Path) -> None:
    result = tidelog("bench", "report", "20260202", "20260101", "--results", results, "--json")
    document = json.loads(result.stdout)
    assert [each["session"][:8] for each in document["sessions"]] == ["20260202", "20260101"]
    (found,) = document["experiments"]
    assert found["session"].startswith("20260202")
    assert found["headlines"] == [
        {
            "figure": "p99_ms",
            "ratio": "on / off",
            "median": 0.2,
            "min": 0.2,
            "max": 0.2,
            "verdicts": ["better"],
        }
    ]
    assert document["unknown"] == ["gone"]
    assert not (results / "report.html").exists()
    absent = tidelog("bench", "report", "2027", "--results", results)
    assert absent.exit_code == 2
    assert "session 2027" in absent.stderr


def test_the_summary_is_printed_on_request_and_writes_nothing(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = tidelog("bench", "report", "latest~1", "--terminal", "--results", results)
    lines = result.stdout.splitlines()
    assert lines[0].startswith("session 20260101T000000Z-standard, 5 pairs")
    assert "    duration p99 ms: on 1; off 3; on / off 0.333x*" in lines
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize(
    "path", sorted((ROOT / "benchmarks" / "results").glob("*.jsonl")), ids=lambda path: path.stem
)
def test_recorded_sessions_of_earlier_versions_have_a_report(path: Path, recorded: None) -> None:
    result = tidelog("bench", "report", path, "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert len(document["experiments"]) + len(document["unknown"]) == 1
    for found in document["experiments"]:
        assert found["headlines"] and found["cells"][0]["ratios"]


@pytest.fixture
def recorded() -> None:
    """The registry is the real one."""


def test_every_json_field_is_documented(results: Path) -> None:
    result = tidelog("bench", "report", "--results", results, "--json")
    document = (ROOT / "docs" / "reference" / "cli-json.md").read_text()
    section = document[document.index("## tidelog bench report") :]
    (found,) = json.loads(result.stdout)["experiments"]
    keys = {*found, *found["headlines"][0], *found["cells"][0], *found["cells"][0]["ratios"][0]}
    assert {key for key in keys if f"`{key}`" not in section} == set()


def shown(records: list[Record], **changes: object) -> list[str]:
    return summary(answers([loaded(records)], [experiment(**changes)]))  # type: ignore[arg-type]


def test_medians_come_with_their_span_and_ratios_with_their_verdict() -> None:
    text = shown(list(five([10, 11, 12, 13, 14], [20, 21, 22, 23, 24])))
    assert text[0] == "durations: How long durations take"
    dash = "\N{EN DASH}"
    assert text[1] == (
        f"    duration p99 ms: on 12 (10{dash}14); off 22 (20{dash}24); "
        f"on / off 0.545x (0.5{dash}0.583)*"
    )
    one = summary(answers([loaded(pair(0, {"p99_ms": 5}, {"p99_ms": 2}), pairs=1)], [experiment()]))
    assert one[1] == "    duration p99 ms: on 5; off 2; on / off 2.5x"
    assert one[-1].endswith("the numbers mean little")


def test_what_is_missing_is_said_and_no_line_is_wider_than_the_terminal() -> None:
    wide = [cell(job="a job with a name " * 6, parallelism=at) for at in (1, 200)]
    figures = [Figure(f"f{at}", f"a long title of a figure {at}", "records/s") for at in range(4)]
    values = {f"f{at}": 1e8 + at for at in range(4)}
    records: list[Record] = [
        SkipRecord(experiment="durations", variant="off", reason="install " + "it " * 60),
        FailureRecord(
            experiment="durations", settings={}, variant="on", pair=2, error="Trace\nOSError: full"
        ),
        *(trial("a variant " * 9, number, values, of) for of in wide for number in range(5)),
    ]
    text = shown(records, figures=figures, main=())
    assert max(map(len, text)) <= WIDTH
    assert "  on, pair 3: FAILED, OSError: full" in text
    assert any(line.startswith("  off: skipped, install it it") for line in text)
    assert sum(line.count("100,000,003") for line in text) == len(wide)
    assert shown([]) == ["nothing has been measured yet"]
