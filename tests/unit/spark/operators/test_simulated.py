"""The functions of a query's executors give what an embedded job gives, whatever the batches."""

import random
from collections import Counter
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path

import pyarrow as pa
import pytest
from msgspec import json

from tests.spark.job import jobs
from tests.support.pipelines import run
from tests.unit.spark.operators.simulated import Simulation
from tidelog import FileSink, Job, JobConfig, JsonLinesSource, Row
from tidelog.spark.job.sources import FileReader
from tidelog.storage.memory import MemoryStore


def records(inputs: dict[str, list[jobs.Records]], number: int) -> dict[str, list[Row]]:
    """A batch of each source."""
    return {name: [Row(**row) for row in batches[number]] for name, batches in inputs.items()}


def outputs(simulation: Simulation) -> dict[str, list[jobs.Line]]:
    """The lines of each output, without those of the end."""
    lines: dict[str, list[jobs.Line]] = {}
    for sink in simulation.plan.sinks:
        (branch,) = simulation.plan.branches_of(sink)
        found = [(line["k"], line["is"]) for line in simulation.records[branch]]
        lines[sink.id.removesuffix("-out")] = [pair for pair in found if pair[0] != jobs.END]
    return lines


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
        simulation.batch(**records(inputs, number))
    for name, found in outputs(simulation).items():
        expected = jobs.lines_of(tmp_path / "out" / name)
        assert expected, name
        assert jobs.compared(found, name) == jobs.compared(expected, name), name


def test_what_is_late_in_a_file_is_late_for_every_window_of_a_query(tmp_path: Path) -> None:
    (rows,) = jobs.batches(records=11_000, parts=1)
    draw = random.Random(3)
    for row in draw.sample(rows[8_000:-1], 300):
        row["t"] -= draw.randrange(60_000)
    file = tmp_path / "source" / "rows.json"
    file.parent.mkdir()
    file.write_bytes(b"\n".join(map(json.encode, rows)))
    run(jobs.windows(tmp_path, tmp_path / "out"), MemoryStore(), JobConfig(parallelism=1))
    simulation = Simulation(jobs.windows(tmp_path, tmp_path / "none"))
    reader = FileReader(JsonLinesSource(file.parent), {})
    uris = pa.RecordBatch.from_pydict({"path": [file.as_uri()]})
    simulation.batch(source={"rows": [records for _, records in reader.read(uris)]})
    for name, found in outputs(simulation).items():
        assert Counter(found) == Counter(jobs.lines_of(tmp_path / "out" / name)), name
        assert simulation.late[name] > 3, name


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.__name__)
def test_a_query_goes_on_with_the_rows_of_another_one(
    job: Callable[[Path, Path], Job], tmp_path: Path
) -> None:
    inputs = jobs.inputs(4)
    whole, first = (Simulation(job(tmp_path, tmp_path / "none")) for _ in range(2))
    for number in range(4):
        whole.batch(**records(inputs, number))
    for number in range(2):
        first.batch(**records(inputs, number))
    states = {node.id: first.state(node.id) for node in first.plan.operators}
    second = Simulation(job(tmp_path, tmp_path / "none"), states)
    for number in range(2, 4):
        second.batch(**records(inputs, number))
    after = outputs(second)
    for name, lines in outputs(first).items():
        found = jobs.compared([*lines, *after[name]], name)
        assert found == jobs.compared(outputs(whole)[name], name), name


def test_state_that_has_expired_goes_though_no_record_reads_its_pages(tmp_path: Path) -> None:
    job = Job("job")
    stream = job.source(JsonLinesSource(tmp_path / "in")).key_by(attrgetter("k"))
    stream.deduplicate(attrgetter("id"), ttl="15s").sink(FileSink(tmp_path / "out"))
    simulation = Simulation(job)
    for batch in range(50):
        ids = [f"{batch:04}-{number:04}" for number in range(300)]
        simulation.batch(source=[Row(k="one", id=record_id) for record_id in ids])
    # A batch takes a second, so fifteen of them are alive.
    assert len(simulation.state("deduplicate").rows) < 300 * 15 * 2
