"""A status tells what a job did, before, while and after it runs."""

import asyncio
from operator import add
from pathlib import Path
from typing import Any

import pytest

from tests.support.damage import checkpoint_in
from tests.support.jobs import config, contents, every_kind, virtual_effects
from tests.support.pipelines import running
from tidelog.checkpoint.schedule import Schedule
from tidelog.connectors.program import Callback, Rate
from tidelog.effects import Effects
from tidelog.materialize.config import MaterializeConfig
from tidelog.runtime.config import JobConfig
from tidelog.runtime.graph import Job
from tidelog.runtime.runner import JobRunner
from tidelog.runtime.status.observe import status_of
from tidelog.runtime.status.status import JobStatus
from tidelog.storage.memory import MemoryStore
from tidelog.storage.port import ObjectStore

RECORDS = 20_000
KEYS = 100


def counting_job(limit: int | None = RECORDS) -> tuple[Job, list[Any]]:
    """Counts numbers per remainder; the list gets the results."""
    results: list[Any] = []
    job = Job("counting")
    numbers = job.source(Rate(None, limit=limit))
    counts = numbers.key_by(lambda n: n % KEYS).aggregate(lambda n: 1, add, name="count")
    counts.sink(Callback(results.append))
    return job, results


def runner_of(job: Job, store: ObjectStore, work_dir: Path, **settings: Any) -> JobRunner:
    config = JobConfig(work_dir=work_dir, checkpoint=Schedule(interval=0.02), **settings)
    return JobRunner(job, store, config, Effects())


async def until(runner: JobRunner, what: Any) -> JobStatus:
    """Run a job until its status has something, then stop it."""
    async with running(runner) as task:
        while not what(status := status_of(runner)):
            assert not task.done(), task
            await asyncio.sleep(0.005)
        return status


@pytest.mark.parametrize("changelog", [True, False])
def test_after_the_end_every_record_is_accounted_for(tmp_path: Path, changelog: bool) -> None:
    job, results = counting_job()
    runner = runner_of(job, MemoryStore("memory://s"), tmp_path, changelog=changelog, parallelism=2)
    asyncio.run(runner.run())
    status = status_of(runner)
    source, count = status.operators
    assert dict(results) == dict.fromkeys(range(KEYS), RECORDS // KEYS)
    assert status.phase == "finished"
    assert (source.id, source.source, source.parallelism) == ("source", True, 2)
    assert (count.id, count.source) == ("count", False)
    assert status.records_read == source.records_out == count.records_in == RECORDS
    assert count.records_out == KEYS
    assert status.checkpoints.completed == len(runner.incarnation.driver.metrics.durations_s) > 0
    assert status.checkpoints.last_slot == runner.incarnation.driver.next_slot - 1
    assert status.state.updates >= status.state.changes >= KEYS
    assert status.state.table_bytes == 0  # closed


def test_a_running_job_shows_its_log_tables_and_materializations(tmp_path: Path) -> None:
    runner = runner_of(
        counting_job(None)[0],
        MemoryStore("memory://s"),
        tmp_path,
        materialize=MaterializeConfig(interval=0.05),
    )
    status = asyncio.run(
        until(runner, lambda s: s.materializations.completed and s.state.materialized_bytes)
    )
    assert status.phase == "running"
    assert status.state.table_bytes > 0
    assert status.state.log_changes > 0
    assert status.materializations.started >= status.materializations.completed
    assert status.materializations.uploaded_bytes > 0
    assert status.materializations.seconds > 0


def test_a_job_remembers_the_checkpoints_that_it_wrote() -> None:
    store = MemoryStore()
    runner = JobRunner(every_kind(), store, config(retain=100), virtual_effects())
    asyncio.run(runner.run())
    assert runner.incarnation is not None
    recent = list(runner.incarnation.driver.metrics.recent)
    objects = contents(store)
    assert len(recent) > 3
    for each in recent:
        entry = checkpoint_in(objects, each.slot)
        assert (each.checkpoint_id, each.created_ms) == (entry.checkpoint_id, entry.created_ms)
        assert each.generation == entry.author.generation
        assert each.manifest_bytes == len(objects[f"checkpoints/{each.slot:08}.json"])
        assert each.sizes.log_full_bytes >= each.sizes.log_incremental_bytes
    uploads = [new for each in recent for new in each.new_tables]
    named = {
        (operator.id, state.index, state.upto)
        for each in recent
        for operator, state in checkpoint_in(objects, each.slot).subtasks()
        if state.materialization is not None
    }
    assert {(new.operator, new.subtask, new.upto) for new in uploads} == named
    assert len(uploads) == len(named) > 2
