"""The figures of a status have the values that the job's work gives them.

What a status says of subtasks, of what waits in their inputs, and of the last checkpoint.
"""

import asyncio
from itertools import pairwise
from operator import add
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.support.clock import VirtualClock
from tests.support.pipelines import Outside
from tests.support.pressure import checkpoints, keyed_job, numbered, overtaken, pressed
from tidelog import Callback, Effects, Job, JobConfig, JobRunner, JobStatus, Rate, status_of
from tidelog.changelog.upload_config import UploadMetrics
from tidelog.checkpoint.sizes import CheckpointContents, CheckpointSizes
from tidelog.effects import InlineOffload
from tidelog.ids import CheckpointId, Generation, KeyGroup, Slot
from tidelog.runtime.checkpoints.completed import CheckpointPhases, CompletedCheckpoint
from tidelog.runtime.checkpoints.driver import CheckpointMetrics
from tidelog.runtime.status.distribution import Distribution, distribution
from tidelog.runtime.status.operators import OperatorStatus
from tidelog.state.backend import KeyedBackend
from tidelog.state.key_groups import KeyGroupRange
from tidelog.state.log import NoLog
from tidelog.state.registry import StateRegistry
from tidelog.state.restore.progress import RestoreProgress
from tidelog.storage.memory import MemoryStore
from tidelog.storage.retry import RetryingStore
from tidelog.storage.retry_policy import LOCAL_POLICY
from tidelog.table.memory import MemoryTable


def backend() -> KeyedBackend:
    clock = VirtualClock(auto=False)
    return KeyedBackend(
        registry=StateRegistry("op"),
        key_groups=8,
        owned=KeyGroupRange(KeyGroup(0), KeyGroup(7)),
        table=MemoryTable(),
        log=NoLog(),
        now_ms=clock.now_ms,
        monotonic=clock.monotonic,
    )


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], None),
        ([2.0], Distribution(2.0, 2.0, 2.0, 2.0)),
        ([4.0, 2.0, 3.0, 1.0], Distribution(1.0, 2.0, 4.0, 4.0)),
        (range(200, 0, -1), Distribution(1, 100, 198, 200)),
    ],
)
def test_a_distribution_has_the_extremes_and_two_ranks(values: Any, expected: Any) -> None:
    assert distribution(values) == expected


@pytest.mark.parametrize("scanned", [True, False])
def test_every_put_is_an_update_and_every_row_of_a_flush_a_change(scanned: bool) -> None:
    state = backend()
    info = state.registry.register("s", "value", ("msgpack",))
    rows = state.rows(info, str.encode, bytes.decode, scanned=scanned)
    for n in range(5):
        rows.put(b"hot", str(n))
    rows.put_many({b"hot": "x", b"a": "x", b"b": "x"})
    rows.delete(b"a")
    state.grew(2)
    assert state.metrics.updates == 0  # not flushed yet
    state.flush()
    assert (state.metrics.updates, state.metrics.changes) == (11, 3)
    rows.put(b"hot", "y")
    state.flush()
    assert (state.metrics.updates, state.metrics.changes) == (12, 4)


def checkpoint_of(number: int) -> CompletedCheckpoint:
    return CompletedCheckpoint(
        slot=Slot(number),
        checkpoint_id=CheckpointId(number),
        generation=Generation(0),
        created_ms=number,
        seconds=float(number),
        phases=CheckpointPhases(0.0, 0.0, float(number), 0.0),
        manifest_bytes=10,
        sizes=CheckpointSizes(number, 0, 0, 0),
        unaligned=False,
        savepoint=None,
        canonical=False,
        new_tables=(),
    )


def test_only_the_last_durations_of_checkpoints_are_kept() -> None:
    metrics = CheckpointMetrics()
    for n in range(5000):
        metrics.complete(100.0 + n, checkpoint_of(n), CheckpointContents(n))
    assert metrics.completed == 5000
    assert [each.slot for each in metrics.recent] == list(range(4488, 5000))
    assert metrics.durations_s == [float(n) for n in range(904, 5000)]
    assert metrics.last is not None and metrics.last.sizes == CheckpointSizes(4999, 0, 0, 0)
    assert metrics.last_contents == CheckpointContents(4999)
    assert metrics.next_since == 5099.0


def test_only_the_last_segments_are_kept() -> None:
    metrics = UploadMetrics()
    for n in range(3000):
        metrics.uploaded(size=n, blocks=2 * n, seconds=n / 8)
    assert (metrics.uploads, metrics.bytes) == (3000, sum(range(3000)))
    assert list(metrics.segment_bytes) == list(range(1976, 3000))
    assert list(metrics.segment_blocks) == list(range(3952, 6000, 2))
    assert list(metrics.latency_s) == [n / 8 for n in range(1976, 3000)]


async def test_the_time_of_a_restore_stands_once_it_is_done() -> None:
    clock = VirtualClock(auto=False)
    progress = RestoreProgress.of(clock, ())
    await clock.advance(3)
    assert progress.seconds is None
    progress.finish()
    await clock.advance(5)
    assert progress.seconds == 3


def status_after(store: Any, work_dir: Path, stop_at: int | None = None) -> JobStatus:
    """The status of a job that counted 20,000 numbers, or was stopped at a checkpoint."""
    job = Job("counting")
    numbers = job.source(Rate(None, limit=None if stop_at else 20_000))
    counts = numbers.key_by(lambda n: n % 100).aggregate(lambda n: 1, add, name="count")
    counts.sink(Callback(lambda record: None))
    runner = JobRunner(job, store, JobConfig(work_dir=work_dir), Effects())

    async def run() -> None:
        running = asyncio.ensure_future(runner.run())
        while stop_at and status_of(runner).checkpoints.completed < stop_at:
            assert not running.done()
            await asyncio.sleep(0.005)
        if stop_at:
            running.cancel()
        await asyncio.gather(running, return_exceptions=stop_at is not None)

    asyncio.run(run())
    return status_of(runner)


def test_a_store_with_counters_shows_them(tmp_path: Path) -> None:
    store = RetryingStore(MemoryStore("memory://s"), LOCAL_POLICY, Effects())
    status = status_after(store, tmp_path)
    assert status.store is not None
    assert status.state.combine_factor is not None and status.state.combine_factor > 1
    create = status.store.create
    assert create.calls == create.attempts == store.request_metrics.create.calls
    assert create.calls >= 1 + status.checkpoints.completed  # the start's slot and theirs
    assert (create.retries, create.hedges, create.failures) == (0, 0, 0)
    assert create.latency_s == distribution(store.request_metrics.create.latency_s) is not None
    assert status.store.bytes_written == store.request_metrics.bytes_written > 0
    assert status.store.bytes_read == store.request_metrics.bytes_read


def test_a_restart_compares_its_checkpoints_to_the_one_it_resumed_from(tmp_path: Path) -> None:
    store = MemoryStore("memory://s")
    first = status_after(store, tmp_path, stop_at=1)
    assert first.checkpoints.sizes is not None
    assert first.restore is None and first.store is None, "it does not count requests"
    second = status_after(store, tmp_path, stop_at=1)
    restore = second.restore
    assert restore is not None and restore.seconds is not None and restore.fraction == 1.0
    assert restore.changes == restore.total_changes > 0
    assert restore.slot >= first.checkpoints.last_slot
    sizes = second.checkpoints.sizes
    assert sizes is not None
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
    effects = Effects(clock, Random(1), InlineOffload())
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
        contents, checkpoint = each.contents, stored[each.last_slot]
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


def test_the_age_of_a_checkpoint_begins_again_with_the_next_one(statuses: list[JobStatus]) -> None:
    for before, after in pairwise(statuses):
        passed = after.at_s - before.at_s
        age, earlier = after.checkpoints.age_s, before.checkpoints.age_s
        assert age is not None and earlier is not None
        if after.checkpoints.completed == before.checkpoints.completed:
            assert age == pytest.approx(earlier + passed)
        else:
            assert 0 <= age <= passed
    assert {status.checkpoints.interval_s for status in statuses} == {1.5}
