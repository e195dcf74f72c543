"""The word count of every system that is installed: right counts, and figures that add up.

Sessions and joins of every system that is installed: right results, and wrong ones are seen.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.bench_trials import trial_in
from tests.support.depth import more_in_depth
from tidelog.errors import TidelogError
from tidelog_bench.embedded.meter import Mark
from tidelog_bench.experiment import Reading, Setting
from tidelog_bench.experiments import peers
from tidelog_bench.peers.programs.tidelog_jobs import WORKERS
from tidelog_bench.peers.systems import missing
from tidelog_bench.peers.task import EventTask, expected, figures

SMALL: Mapping[str, Setting] = {
    "keys": 300,
    "key_bytes": 16,
    "skewed": False,
    "draws": 5000,
    "warm_s": 0.2,
    "seconds": 0.5,
    "checkpoint_s": 0.1,
    "batch_words": 4096,
}


def reading(variant: str, directory: Path) -> Reading:
    return peers.measure(trial_in(directory, SMALL, variant, seed=3))


def check_figures(found: Reading) -> None:
    figures = found.figures
    assert figures["records"] > 0
    assert figures["cpu_us_per_record"] > 0
    assert figures["durable_mb"] > 300 * 16 / 1e6, "every word is durable"
    assert {"records_per_s", "commits", "peak_mb"} <= figures.keys()


def test_tidelog_counts_right_from_its_store_alone(tmp_path: Path) -> None:
    found = reading("tidelog", tmp_path)

    check_figures(found)
    assert found.figures["records"] % 8 == 0, "whole buffers only: 5000 = 2 * 2048 + 904"


@pytest.mark.parametrize("variant", more_in_depth(["tidelog-workers"], list(WORKERS)))
def test_tidelog_run_counts_files_right_when_it_was_killed(variant: str, tmp_path: Path) -> None:
    found = reading(variant, tmp_path)

    check_figures(found)
    assert found.figures["commits"] > 0


@pytest.mark.parametrize(
    "variant", more_in_depth(["bytewax"], ["bytewax", "quix-store", "pyflink", "flink-stream"])
)
def test_a_peer_counts_right_from_what_it_made_durable(variant: str, tmp_path: Path) -> None:
    if reason := missing(variant):
        pytest.skip(reason)
    found = reading(variant, tmp_path)

    check_figures(found)
    assert found.notes["versions"]


def test_a_program_in_java_needs_the_compiler(tmp_path: Path) -> None:
    (tmp_path / "java").touch(mode=0o755)
    reasons = [missing(each, {"PATH": str(tmp_path)}) or "" for each in ("pyflink", "flink-stream")]
    if any("not installed" in reason for reason in reasons):
        pytest.skip(reasons[0])

    assert reasons[0] == ""
    assert "javac" in reasons[1]


EVENTS = {"rows": 1000, "keys": 20, "rows_per_event_s": 20, "within_ms": 2000, "checkpoint_s": 0.1}


@pytest.mark.parametrize("job", ["session", "join"])
@pytest.mark.parametrize(
    "variant", more_in_depth(["tidelog", "bytewax"], ["tidelog", "bytewax", "pyflink"])
)
def test_a_system_gives_the_results_of_a_plain_computation(
    job: str, variant: str, tmp_path: Path
) -> None:
    if reason := missing(variant):
        pytest.skip(reason)

    found = peers.measure_events(trial_in(tmp_path, {"job": job, **EVENTS}, variant))

    assert found.figures["results"] > 50
    assert found.figures["rows_per_s"] > 0


def test_a_wrong_result_gives_no_figures(tmp_path: Path) -> None:
    task = EventTask(job="session", **EVENTS, variant="tidelog", seed=3, directory=str(tmp_path))
    drawn = task.write()
    results = [dict(zip(task.fields, found, strict=True)) for found in expected(task, drawn)]
    results[0]["value"] += 1
    task.results.mkdir()
    (task.results / "part-0").write_text("\n".join(map(json.dumps, results)))

    with pytest.raises(TidelogError, match="checksum"):
        figures(task, drawn, Mark(0.0, 0.0, 0), Mark(1.0, 1.0, task.rows))
