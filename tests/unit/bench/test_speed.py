"""`just speed` on tiny inputs: it compares, and says what is above a limit or missing."""

import json
import tempfile
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from benchmarks.speed import runs
from benchmarks.speed.__main__ import main
from benchmarks.speed.workloads import WORKLOADS
from tests.support.depth import more_in_depth
from tidelog.errors import TidelogError

TINY = ("--base", "HEAD", "--pairs", "1", "--share", "0.001")

pytestmark = pytest.mark.skipif(
    not (runs.ROOT / ".git").exists(), reason="the sources of a revision are in a clone alone"
)


@pytest.fixture(autouse=True)
def temporary(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither what earlier sessions have kept is used nor anything left behind."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def speed(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def test_both_figures_of_each_workload_are_shown_and_a_ratio_above_the_limit_fails() -> None:
    done = speed(*TINY, "--only", "rows", "--limit", "0")

    assert done.exit_code == 1, done.output
    [row] = [line.split() for line in done.stdout.splitlines() if line.startswith("rows")]
    base, today, ratio, limit, above, *p50 = row[1:]
    assert float(base) > 0
    assert float(today) > 0
    assert float(ratio) == pytest.approx(float(today) / float(base), abs=0.05)
    assert (limit, above) == ("0.00", "ABOVE")
    assert p50[1] == "->"


@pytest.mark.parametrize("workload", more_in_depth(["rescale"], list(WORKLOADS)))
def test_json_and_the_file_of_results_have_the_same(workload: str, tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    done = speed(*TINY, "--only", workload, "--limit", "1000", "--json", "--results", str(results))

    assert done.exit_code == 0, done.output
    assert results.read_text() == done.stdout
    document = json.loads(done.stdout)
    [found] = document["comparisons"]
    assert document["base"] == document["head"]
    assert found["workload"] == workload
    for side in ("base", "today"):
        assert found[side]["cpu_s"] > 0
        assert found[side]["checkpoint_p50_s"] > 0
        assert len(found[side]["runs"]) == 1


def test_a_base_that_is_not_in_the_clone_is_an_error_that_says_what_to_do() -> None:
    done = speed("--base", "no-such-revision")

    assert done.exit_code == 1
    assert "base revision no-such-revision" in done.output
    assert "git fetch" in done.output
    assert "--base" in done.output


def test_a_shallow_clone_is_told_how_to_get_the_base(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    clone = tmp_path / "clone"
    copied = runs._git("clone", "-q", "--depth", "1", f"file://{runs.ROOT}", str(clone))
    assert copied.returncode == 0, copied.stderr
    monkeypatch.setattr(runs, "ROOT", clone)
    done = speed("--base", "7f353cd")

    assert done.exit_code == 1
    assert "a shallow clone without it" in done.output
    assert "git fetch --unshallow" in done.output


def test_a_run_that_fails_shows_what_it_printed(tmp_path: Path) -> None:
    source = tmp_path / "src"
    (source / "tidelog").mkdir(parents=True)
    (inputs := tmp_path / "inputs").mkdir()
    (source / "tidelog" / "__init__.py").touch()
    (source / "tidelog" / "__main__.py").write_text("raise SystemExit('this is why')")

    with pytest.raises(TidelogError, match=r"(?s)exit code 1.*this is why"):
        runs.run(source, WORKLOADS["short"], inputs, None)
    with pytest.raises(TidelogError, match=r"(?s)exit code 1.*this is why"):
        runs.prepare(source, WORKLOADS["restore"], inputs, tmp_path / "at" / "store")
