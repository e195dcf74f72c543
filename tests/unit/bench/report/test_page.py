"""The page of a report: what it says of a session, and which records are on the recorded page."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.bench_sessions import five, loaded, session, trial
from tests.support.bench_toy import cell, experiment
from tests.support.cli import tidelog
from tidelog_bench.experiment import Better, Figure, Ratio, Size
from tidelog_bench.experiments import experiments
from tidelog_bench.report.answer import Report, answers, recorded
from tidelog_bench.report.numbers import Verdict, ratios, verdict
from tidelog_bench.report.shown import page
from tidelog_bench.session.records import FailureRecord, Record, SkipRecord, append

ROOT = Path(__file__).parents[4]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
QUOTES = re.compile(r"<!-- figures of benchmarks/results -->\n(.*?)<!-- end of figures -->", re.S)


def shown(records: Sequence[Record]) -> str:
    sessions = [loaded(records)]
    return page(Report(sessions, answers(sessions, [experiment()]), []))


def test_the_page_of_the_recorded_sessions_is_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    text = (ROOT / "benchmarks" / "results" / "README.md").read_text()
    assert tidelog("bench", "report", "--all").stdout == text, "run `just figures`"


def test_readme_and_docs_quote_that_page() -> None:
    text = (ROOT / "benchmarks" / "results" / "README.md").read_text()
    rows = [
        row.split("|")[2:-1]
        for path in PAGES
        for table in QUOTES.findall(path.read_text())
        for row in table.strip().splitlines()[2:]
    ]
    cells = [value.strip() for row in rows for value in row if value.strip()]
    assert len(cells) > 15
    assert [value for value in cells if f"| {value} |" not in text and value[0] != "`"] == []


def test_each_claim_of_the_readme_names_its_experiment() -> None:
    tables = QUOTES.findall((ROOT / "README.md").read_text())
    rows = [row for table in tables for row in table.strip().splitlines()[2:]]
    assert rows
    for row in rows:
        name, *options = row.split("`")[-2].split()
        known = {key for cell in experiments()[name].cells(Size.STANDARD) for key in cell.settings}
        assert {option.partition("=")[0] for option in options[1::2]} <= known, row


def test_a_cell_has_medians_and_ratios_in_one_table() -> None:
    text = shown(five([1000, 2000, 3000, 4000, 5000], [2000] * 5))
    assert "| figure | on | off | on / off |\n|---|---:|---:|---:|\n" in text
    assert "| duration p99 | 3 s (1-5) | 2 s | 1.5x (0.5-2.5), within noise |" in text


def test_what_is_skipped_or_failed_is_on_the_page_and_html_is_text() -> None:
    hostile = "<script>alert(1)</script>"
    records: list[Record] = [
        *five([1] * 5, [2] * 5, of=cell(job=hostile)),
        trial(hostile, 0, {"p99_ms": 1.0}, cell(job="x")),
        SkipRecord(experiment="durations", variant="peer", reason=hostile),
        FailureRecord(experiment="durations", settings={}, variant="on", pair=0, error="a\nb"),
    ]
    text = shown(records)
    assert "<script" not in text and text.count("&lt;script>alert(1)") >= 3
    assert "* peer: skipped, &lt;script>" in text and "* on, pair 1: FAILED, b" in text


def test_a_recorded_cell_needs_five_pairs_of_a_session_that_is_not_quick(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "tidelog_bench.report.answer.experiments", lambda: {"durations": experiment()}
    )
    trials = five([1] * 5, [2] * 5)
    for day, size, records in ((1, "standard", trials), (2, "standard", trials[:8])):
        record(tmp_path, day, size, records)
    record(tmp_path, 3, "quick", trials)
    (found,) = recorded(sorted(tmp_path.glob("*.jsonl"))).answers
    assert found.session.session == "20260101T000000Z-standard"


def record(directory: Path, day: int, size: str, records: Sequence[Record]) -> None:
    name = f"2026010{day}T000000Z-{size}"
    first = session(session=name, started=f"2026-01-0{day}T00:00:00+00:00", size=size)  # type: ignore[arg-type]
    for each in (first, *records):
        append(directory / f"{name}.jsonl", each)


SLOW, FAST = [20.0, 21.0, 22.0, 23.0, 24.0], [10.0, 11.0, 12.0, 13.0, 23.9]


@pytest.mark.parametrize(
    ("on", "off", "better", "said"),
    [
        (FAST, SLOW, "lower", Verdict.BETTER),
        (SLOW, FAST, "lower", Verdict.WORSE),
        (FAST, SLOW, "higher", Verdict.WORSE),
        (SLOW, FAST, "higher", Verdict.BETTER),
        (FAST, SLOW, "neither", Verdict.DIFFERENT),
        ([*FAST[:4], 24.1], SLOW, "lower", Verdict.NOISE),  # one pair on the other side of 1
        ([*FAST[:4], 24.0], SLOW, "lower", Verdict.NOISE),  # one pair that is exactly even
        (SLOW, SLOW, "lower", Verdict.EQUAL),
    ],
)
def test_five_pairs_on_one_side_of_one_are_beyond_noise(
    on: list[float], off: list[float], better: Better, said: Verdict
) -> None:
    records, figure = five(on, off), Figure("p99_ms", "duration", "ms", better)
    found = ratios(records, [Ratio("on", "off")])["on / off"]["p99_ms"]
    assert verdict(found, figure) is said
    four = ratios(records[:8], [Ratio("on", "off")])["on / off"]["p99_ms"]
    assert verdict(four, figure) is Verdict.FEW
