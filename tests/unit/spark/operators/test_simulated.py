"""The functions of a query's executors give what an embedded job gives, whatever the batches."""

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import json

from tests.spark.job import jobs
from tests.support.pipelines import run
from tests.unit.spark.operators.simulated import Simulation
from tidelog import Job, Row
from tidelog.storage.memory import MemoryStore

JOBS = [jobs.windows, jobs.keyed, jobs.joins, jobs.processors]


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.__name__)
@pytest.mark.parametrize("parts", [1, 5])
def test_a_query_gives_what_the_embedded_job_gives(
    job: Callable[[Path, Path], Job], parts: int, tmp_path: Path
) -> None:
    inputs = jobs.inputs(parts)
    for name, batches in inputs.items():
        (tmp_path / name).mkdir()
        lines = [json.encode(row) for batch in batches for row in batch]
        (tmp_path / name / "rows.json").write_bytes(b"\n".join(lines))
    run(job(tmp_path, tmp_path / "out"), MemoryStore())
    simulation = Simulation(job(tmp_path, tmp_path / "none"))
    for number in range(parts):
        records = {name: [Row(**r) for r in batches[number]] for name, batches in inputs.items()}
        simulation.batch(**records)
    for sink in simulation.plan.sinks:
        name = sink.id.removesuffix("-out")
        (branch,) = simulation.plan.branches_of(sink)
        found = [(line["k"], line["is"]) for line in simulation.records[branch]]
        found = [pair for pair in found if pair[0] != jobs.END]
        expected = jobs.lines_of(tmp_path / "out" / name)
        assert expected, name
        assert jobs.compared(found, name) == jobs.compared(expected, name), name
