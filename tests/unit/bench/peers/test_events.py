"""Sessions and joins of every system that is installed: right results, and wrong ones are seen."""

import json
from pathlib import Path

import pytest

from tests.support.bench_trials import trial_in
from tests.support.depth import more_in_depth
from tidelog.errors import TidelogError
from tidelog_bench.embedded.meter import Mark
from tidelog_bench.experiments import peers_events
from tidelog_bench.peers.systems import missing
from tidelog_bench.peers.task import EventTask, expected, figures

SMALL = {
    "rows": 1000,
    "keys": 20,
    "rows_per_event_s": 20,
    "within_ms": 2000,
    "checkpoint_s": 0.1,
}


@pytest.mark.parametrize("job", ["session", "join"])
@pytest.mark.parametrize(
    "variant", more_in_depth(["tidelog", "bytewax"], ["tidelog", "bytewax", "pyflink"])
)
def test_a_system_gives_the_results_of_a_plain_computation(
    job: str, variant: str, tmp_path: Path
) -> None:
    if reason := missing(variant):
        pytest.skip(reason)

    found = peers_events.measure(trial_in(tmp_path, {"job": job, **SMALL}, variant))

    assert found.figures["results"] > 50
    assert found.figures["rows_per_s"] > 0


def test_a_wrong_result_gives_no_figures(tmp_path: Path) -> None:
    task = EventTask(job="session", **SMALL, variant="tidelog", seed=3, directory=str(tmp_path))
    drawn = task.write()
    results = [dict(zip(task.fields, found, strict=True)) for found in expected(task, drawn)]
    results[0]["value"] += 1
    task.results.mkdir()
    (task.results / "part-0").write_text("\n".join(map(json.dumps, results)))

    with pytest.raises(TidelogError, match="checksum"):
        figures(task, drawn, Mark(0.0, 0.0, 0), Mark(1.0, 1.0, task.rows))
