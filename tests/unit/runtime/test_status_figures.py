"""The figures of a status have the values that the job's work gives them."""

import asyncio
from operator import add
from pathlib import Path
from typing import Any

import pytest

from tests.support.clock import VirtualClock
from tidelog.changelog.upload_config import UploadMetrics
from tidelog.checkpoint.sizes import CheckpointContents, CheckpointSizes
from tidelog.connectors.program import Callback, Rate
from tidelog.effects import Effects
from tidelog.ids import CheckpointId, Generation, KeyGroup, Slot
from tidelog.runtime.checkpoints.completed import CheckpointPhases, CompletedCheckpoint
from tidelog.runtime.checkpoints.driver import CheckpointMetrics
from tidelog.runtime.config import JobConfig
from tidelog.runtime.graph import Job
from tidelog.runtime.runner import JobRunner
from tidelog.runtime.status.distribution import Distribution, distribution
from tidelog.runtime.status.observe import status_of
from tidelog.runtime.status.status import JobStatus
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


def test_the_time_of_a_restore_stands_once_it_is_done() -> None:
    async def steps() -> RestoreProgress:
        clock = VirtualClock(auto=False)
        progress = RestoreProgress.of(clock, ())
        await clock.advance(3)
        assert progress.seconds is None
        progress.finish()
        await clock.advance(5)
        return progress

    assert asyncio.run(steps()).seconds == 3


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
