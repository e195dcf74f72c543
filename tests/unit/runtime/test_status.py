"""A status says what a job did, before, while and after it runs, with the values that the job's
work gives its figures: of subtasks, of what waits in their inputs, of the last checkpoint."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.support.clock import VirtualClock, in_virtual_time
from tests.support.damage import checkpoint_in
from tests.support.jobs import config, contents, every_kind, virtual_effects
from tests.support.pipelines import Outside, running
from tests.support.pressure import checkpoints, keyed_job, numbered, overtaken, pressed
from tidelog import (
    CheckpointConfig,
    ForeachSink,
    Job,
    JobConfig,
    JobRunner,
    MaterializeConfig,
    RateSource,
    StatefulProcessor,
    UserFunctionError,
)
from tidelog.effects import Effects
from tidelog.runtime.status.distribution import distribution
from tidelog.runtime.status.observe import status_of
from tidelog.runtime.status.status import JobStatus, OperatorStatus
from tidelog.storage.memory import MemoryStore
from tidelog.storage.port import ObjectStore
from tidelog.storage.retry import RetryingStore
from tidelog.storage.retry_policy import LOCAL_POLICY

RECORDS = 20_000
KEYS = 100


def counting_job(limit: int | None = RECORDS) -> tuple[Job, list[Any]]:
    """Counts numbers per remainder; the list gets the results."""
    results: list[Any] = []
    job = Job("counting")
    numbers = job.source(RateSource(None, limit=limit))
    numbers.key_by(lambda n: n % KEYS).count().sink(ForeachSink(results.append))
    return job, results


def runner_of(job: Job, store: ObjectStore, work_dir: Path, **settings: Any) -> JobRunner:
    config = JobConfig(work_dir=work_dir, checkpoint=CheckpointConfig(interval=0.02), **settings)
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
    assert status.checkpoints.last_checkpoint == runner.incarnation.driver.next_slot - 1
    # Neither positions of the source nor how far the end has come are updates of a state.
    assert status.state.updates == RECORDS
    assert status.state.updates >= status.state.changes >= KEYS
    assert status.state.table_bytes == 0  # closed


def test_a_running_job_shows_its_log_tables_and_materializations(tmp_path: Path) -> None:
    often = MaterializeConfig(interval=0.05)
    runner = runner_of(counting_job(None)[0], MemoryStore(), tmp_path, materialize=often)

    def all_there(status: JobStatus) -> bool:
        # Just after a materialization there may be no log.
        state = status.state
        return bool(
            status.materializations.completed and state.materialized_bytes and state.log_changes
        )

    status = asyncio.run(until(runner, all_there))
    assert status.phase == "running"
    assert status.state.table_bytes > 0
    assert status.state.log_changes > 0
    assert status.materializations.started >= status.materializations.completed
    assert status.materializations.uploaded_bytes > 0
    assert status.materializations.seconds > 0


def test_a_job_that_failed_is_ending_and_does_not_start_again(tmp_path: Path) -> None:
    phases: list[str] = []

    class Failing(StatefulProcessor):
        def init(self, handle: Any) -> None:
            pass

        def handleInputRows(self, key: Any, rows: Any, timers: Any) -> Any:
            phases.append(status_of(runner).phase)
            raise ValueError

        def close(self) -> None:
            phases.append(status_of(runner).phase)

    job = Job("failing")
    keyed = job.source(RateSource(None, limit=1)).key_by(lambda n: n)
    keyed.transform_with_state(Failing).sink(ForeachSink(print))
    runner = runner_of(job, MemoryStore(), tmp_path)
    with pytest.raises(UserFunctionError):
        asyncio.run(runner.run())
    assert [*phases, status_of(runner).phase] == ["running", "ending", "ending"]


def test_a_job_remembers_the_checkpoints_that_it_wrote() -> None:
    store = MemoryStore()
    runner = JobRunner(every_kind(), store, config(retain=100), virtual_effects())
    asyncio.run(runner.run())
    recent = list(runner.incarnation.driver.metrics.recent)
    objects = contents(store)
    assert len(recent) > 3
    for each in recent:
        entry = checkpoint_in(objects, each.checkpoint)
        assert (each.attempt, each.created_ms) == (entry.checkpoint_id, entry.created_ms)
        assert each.generation == entry.author.generation
        assert each.manifest_bytes == len(objects[f"checkpoints/{each.checkpoint:08}.json"])
        assert each.sizes.log_full_bytes >= each.sizes.log_incremental_bytes
    uploads = [new for each in recent for new in each.new_tables]
    named = {
        (operator.id, state.index, state.upto)
        for each in recent
        for operator, state in checkpoint_in(objects, each.checkpoint).subtasks()
        if state.materialization is not None
    }
    assert {(new.operator, new.subtask, new.upto) for new in uploads} == named
    assert len(uploads) == len(named) > 2


def test_a_store_with_counters_shows_them(tmp_path: Path) -> None:
    store = RetryingStore(MemoryStore("memory://s"), LOCAL_POLICY, Effects())
    runner = runner_of(counting_job()[0], store, tmp_path)
    asyncio.run(runner.run())
    status = status_of(runner)
    assert status.state.combine_factor > 1
    create = status.store.create
    assert create.calls == create.attempts == store.request_metrics.create.calls
    assert create.calls >= 1 + status.checkpoints.completed  # the start's slot and theirs
    assert (create.retries, create.hedges, create.failures) == (0, 0, 0)
    assert create.latency_s == distribution(store.request_metrics.create.latency_s) is not None
    assert status.store.bytes_written == store.request_metrics.bytes_written > 0
    assert status.store.bytes_read == store.request_metrics.bytes_read


def test_a_restart_compares_its_checkpoints_to_the_one_it_resumed_from(tmp_path: Path) -> None:
    store = MemoryStore("memory://s")

    def has_a_log(status: JobStatus) -> bool:
        contents = status.checkpoints.contents
        return contents is not None and contents.replay_changes > 0

    def stopped_at_a_checkpoint() -> JobStatus:
        runner = runner_of(counting_job(None)[0], store, tmp_path)
        return asyncio.run(until(runner, has_a_log))

    first = stopped_at_a_checkpoint()
    assert first.restore is None and first.store is None, "it does not count requests"
    second = stopped_at_a_checkpoint()
    restore = second.restore
    assert restore.seconds is not None and restore.fraction == 1.0
    assert restore.changes == restore.total_changes > 0
    assert restore.checkpoint >= first.checkpoints.last_checkpoint
    sizes = second.checkpoints.sizes
    assert 0 < sizes.log_incremental_bytes <= sizes.log_full_bytes
    assert sizes.materialized_full_bytes == sizes.materialized_incremental_bytes == 0


SLOW_S = 0.2
"""What the operator of the job takes for each buffer."""


@pytest.fixture(scope="module")
def objects() -> MemoryStore:
    return MemoryStore("memory://pressed")


@pytest.fixture(scope="module")
def statuses(objects: MemoryStore) -> list[JobStatus]:
    """A job that is slower than its sources, looked at until its end, and after it."""
    clock = VirtualClock()
    job = keyed_job(numbered(4, 80), Outside(), clock, SLOW_S)
    effects = in_virtual_time(1, clock)
    runner = JobRunner(job, objects, pressed("always", parallelism=2), effects)
    seen: list[JobStatus] = []

    async def main() -> None:
        running = asyncio.ensure_future(runner.run())
        while not running.done():
            await clock.sleep(0.35)
            if runner.running:
                seen.append(status_of(runner))
        running.result()
        seen.append(status_of(runner))

    asyncio.run(main())
    return seen


def operator(status: JobStatus, id: str) -> OperatorStatus:
    return next(operator for operator in status.operators if operator.id == id)


def test_times_of_subtasks_add_up_to_those_of_their_operator(statuses: list[JobStatus]) -> None:
    for status in statuses:
        for each in status.operators:
            assert [task.subtask for task in each.tasks] == list(range(each.parallelism))
            assert sum(task.busy_s for task in each.tasks) == pytest.approx(each.busy_s)
            waited = sum(task.backpressured_s for task in each.tasks)
            assert waited == pytest.approx(each.backpressured_s)
    busy = [task.busy_s for task in operator(statuses[-1], "slow").tasks]
    assert all(seconds >= SLOW_S for seconds in busy)
    assert sum(task.backpressured_s for task in operator(statuses[-1], "source").tasks) > 0


def test_what_waits_in_inputs_is_counted_in_buffers_and_bytes(statuses: list[JobStatus]) -> None:
    full = max(statuses, key=lambda status: status.memory.channels_bytes)
    slow = operator(full, "slow")
    assert all(task.input_buffers > 1 for task in slow.tasks)
    for task in slow.tasks:
        # A buffer holds at least a record, and a record takes more than its three fields.
        assert task.input_bytes >= 50 * task.input_buffers
    inputs = sum(task.input_bytes for each in full.operators for task in each.tasks)
    assert full.memory.channels_bytes == inputs > 0
    assert all(task.input_buffers == 0 for task in operator(full, "source").tasks)
    assert all(task.input_buffers == 0 for each in statuses[-1].operators for task in each.tasks)


def test_the_last_checkpoint_is_described_as_it_is_stored(
    statuses: list[JobStatus], objects: MemoryStore
) -> None:
    stored = {checkpoint.slot: checkpoint for checkpoint in checkpoints(objects)}
    seen = [s.checkpoints for s in statuses if s.checkpoints.contents is not None]
    assert sum(each.contents.in_flight_buffers > 0 for each in seen) >= 2
    for each in seen:
        contents, checkpoint = each.contents, stored[each.last_checkpoint]
        states = [state for _, state in checkpoint.subtasks()]
        facts = [state.barrier for state in states if state.barrier is not None]
        assert contents.in_flight_buffers == overtaken(checkpoint)
        assert contents.in_flight_bytes == sum(s.in_flight.bytes for s in states if s.in_flight)
        assert contents.unaligned_subtasks == sum(fact.unaligned for fact in facts)
        assert contents.start_delay_s == max(fact.start_delay_ms for fact in facts) / 1000
        assert contents.alignment_s == max(fact.alignment_ms for fact in facts) / 1000
        assert contents.transactions == sum(len(state.transactions) for state in states)
        assert contents.inline_bytes == sum(len(b) for state in states for b in state.inline)
        assert contents.replay_changes == sum(state.seqno - state.upto for state in states)
