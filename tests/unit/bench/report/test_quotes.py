"""Figures in the documentation are those of the recorded sessions; targets say what they should."""

from pathlib import Path

import pytest

from tests.support.bench_sessions import five, session
from tests.support.cli import tidelog
from tidelog_bench.report.declared import Place, Target, declared, find_figure, quoted

ROOT = Path(__file__).parents[4]
PLACE = Place(experiment="durations", where={"key_bytes": 16}, figure="p99_ms")


def test_readme_and_docs_have_the_recorded_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    result = tidelog("bench", "quote", "--check")
    assert result.exit_code == 0, result.output


def test_a_figure_needs_five_pairs_of_a_session_that_is_not_quick() -> None:
    trials = five([1000, 2000, 3000, 4000, 5000], [2000] * 5)
    found = find_figure([(session(), trials)], PLACE, "p99_ms", "on")
    assert quoted(found, "p99_ms", "on") == "3 s (1-5)"
    ratio = find_figure([(session(), trials)], PLACE, "p99_ms", "on / off")
    assert quoted(ratio, "p99_ms", "on / off") == "1.5x (0.5-2.5), within noise"
    assert find_figure([(session(), trials[:8])], PLACE, "p99_ms", "on") is None
    assert find_figure([(session(size="quick"), trials)], PLACE, "p99_ms", "on") is None


def test_a_target_is_met_missed_or_not_measured() -> None:
    recorded = [(session(), five([90] * 5, [100] * 5))]
    for of, at_most, says in (("on", 90, "met"), ("on", 89, "missed"), ("x", 1, "not measured")):
        target = Target(text="", experiment="durations", figure="p99_ms", of=of, at_most=at_most)
        assert target.result(recorded)["says"] == says
    assert len(declared("targets").targets) > 20
