"""The stored log stays short, however busy checkpoints are: tables get their share of the link.

Whole jobs in virtual time, behind a store with the latency and the bandwidth of S3.

A restore reads each byte once, into however many subtasks it goes.
"""

import asyncio
import logging
from collections import Counter, defaultdict
from itertools import pairwise
from random import Random

import pytest

from tests.simulator.machine.loop import VirtualLoop, run_virtual
from tests.simulator.machine.process import Process, effects_of
from tests.support.clock import in_virtual_time
from tests.support.depth import more_in_depth
from tests.unit.verify.stores import CountingStore
from tidelog import (
    Checkpoint,
    CheckpointConfig,
    ForeachSink,
    Job,
    JobConfig,
    JobRunner,
    JobStatus,
    MaterializeConfig,
    RateSource,
    RestoreConfig,
    UploadConfig,
    UserFunctionError,
    status_of,
)
from tidelog.catalog.inventory import read_slots
from tidelog.changelog.block import Block
from tidelog.changelog.change import ChangeBatch
from tidelog.effects import Effects
from tidelog.runtime.status.checkpoints import RestoreStatus
from tidelog.storage import object_names
from tidelog.storage.memory import MemoryStore
from tidelog_bench.store import LatencyProfile, ModelledStore

SUBTASKS = 8
INTERVAL_S = 2.0
SECONDS = 14
VALUE = "x" * 600
"""Large enough that each table has files of its own, uploaded whole each time."""


class Run:
    """A job whose checkpoints follow each other without a pause, looked at from outside."""

    def __init__(self, settings: MaterializeConfig) -> None:
        self.settings = settings
        self.log_bytes: list[int] = []
        """Segments in the store, twice a second."""
        self.statuses: list[JobStatus] = []

    async def main(self) -> None:
        effects = effects_of(Process("process", Random(1)))
        manners = LatencyProfile(latency_ms=30, mb_per_s=50)
        self.store = ModelledStore(MemoryStore(), effects.clock, manners)
        runner = JobRunner(busy(effects), self.store, self.config(), effects)
        running = asyncio.ensure_future(runner.run())
        for _ in range(2 * SECONDS):
            await asyncio.sleep(0.5)
            assert not running.done()
            self.log_bytes.append(self.stored(object_names.SEGMENTS))
            self.statuses.append(status_of(runner))
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    def config(self) -> JobConfig:
        return JobConfig(
            parallelism=SUBTASKS,
            table="memory",
            retain=1,
            checkpoint=CheckpointConfig(interval=0.001),
            materialize=self.settings,
        )

    def stored(self, prefix: str) -> int:
        stored = self.store.stored.items()
        return sum(size for name, size in stored if name.startswith(prefix))

    def finished_at(self) -> dict[str, list[float]]:
        """When the materializations of each subtask were durable."""
        times: dict[str, list[float]] = defaultdict(list)
        for write in self.store.writes:
            if write.name.startswith(object_names.MATERIALIZATIONS):
                subtask = write.name.rpartition("/")[2].rpartition("-")[0]
                times[subtask].append(write.ended)
        return times


def busy(effects: Effects) -> Job:
    job = Job("busy")
    source = RateSource(1000, make=lambda n: n * 7919 % 4800, clock=effects.clock)
    keyed = job.source(source, parallelism=1).key_by(lambda key: key)
    keyed.aggregate(lambda key: VALUE[: 500 + key % 100], max).sink(ForeachSink(lambda _: None))
    return job


def run(settings: MaterializeConfig) -> Run:
    job = Run(settings)
    run_virtual(job.main(), VirtualLoop())
    return job


@pytest.fixture(scope="module")
def on_time() -> Run:
    return run(MaterializeConfig(interval=INTERVAL_S))


def test_no_interval_is_missed_by_more_than_half_of_itself(on_time: Run) -> None:
    finished = on_time.finished_at()
    assert len(finished) == SUBTASKS + 1, "and the source"
    for subtask, times in finished.items():
        gaps = [after - before for before, after in pairwise(times)]
        assert max(gaps) <= 1.5 * INTERVAL_S, subtask
        assert len(times) >= SECONDS / INTERVAL_S - 1.5, subtask


def test_the_stored_log_is_bounded_by_the_interval(on_time: Run) -> None:
    """A change is stored until its table is, at most one interval and a half later; what then goes
    with the next checkpoint lies in segments that other subtasks may need for as long.
    """
    written = sum(w.size for w in on_time.store.writes if w.name.startswith(object_names.SEGMENTS))
    per_s = written / SECONDS
    settled = on_time.log_bytes[int(4 * INTERVAL_S) :]
    assert max(settled) <= 2 * INTERVAL_S * per_s
    early, late = settled[: len(settled) // 2], settled[len(settled) // 2 :]
    assert max(late) <= 1.25 * max(early), "it does not grow with time"


def test_tables_on_time_are_late_in_no_status(on_time: Run) -> None:
    last = on_time.statuses[-1]
    assert last.materializations.missed == 0
    assert all(s.materializations.lag_s <= INTERVAL_S / 2 for s in on_time.statuses)


def test_a_link_too_slow_for_the_tables_is_a_figure_and_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "tidelog"):
        slow = run(MaterializeConfig(interval=INTERVAL_S, bytes_per_s=55_000))
    behind = [
        r.getMessage() for r in caplog.records if "materializations are late" in r.getMessage()
    ]
    assert len(behind) == 1
    assert f"of {SUBTASKS + 1} subtasks" in behind[0] and "bandwidth" in behind[0]
    last = slow.statuses[-1].materializations
    assert last.lag_s > 2 * INTERVAL_S
    assert last.missed > SUBTASKS
    assert last.interval_s == INTERVAL_S
    for status in slow.statuses:
        late = [task.materialization_lag_s for each in status.operators for task in each.tasks]
        assert max(late, default=0.0) == status.materializations.lag_s


KEYS = 200
RECORDS = 7_500
BREAK = 6_000


def job(world: Effects, results: dict[int, int], breaks: bool) -> Job:
    def value(n: int) -> int:
        if breaks and n >= BREAK:
            raise ValueError("the machine breaks")
        return n

    job = Job("sums")
    source = RateSource(1000, limit=RECORDS, clock=world.clock)
    sums = job.source(source, parallelism=1).key_by(lambda n: n % KEYS).sum(value)
    sums.sink(ForeachSink(lambda record: results.__setitem__(*record)))
    return job


def summed(
    store: CountingStore,
    parallelism: int,
    *,
    breaks: bool = False,
    inline_bytes: int = 0,
    restore: RestoreConfig | None = None,
) -> tuple[dict[int, int], RestoreStatus | None]:
    """The sums, and what the status said of the restore when it was over."""
    world = in_virtual_time(1)
    results: dict[int, int] = {}
    restored: list[RestoreStatus | None] = []
    settings = JobConfig(
        parallelism=parallelism,
        key_groups=64,
        table="memory",
        checkpoint=CheckpointConfig(interval=0.5),
        upload=UploadConfig(inline_bytes=inline_bytes),
        materialize=MaterializeConfig(interval=1e6, replay_target=1e6),
        restore=restore or RestoreConfig(),
    )
    runner = JobRunner(job(world, results, breaks), store, settings, world)
    asyncio.run(runner.run(lambda: restored.append(status_of(runner).restore)))
    return results, restored[0]


SUMS = {key: sum(range(key, RECORDS, KEYS)) for key in range(KEYS)}


def broken_off(parallelism: int, **settings: int) -> tuple[CountingStore, Checkpoint]:
    """A store, and its newest checkpoint."""
    store = CountingStore()
    with pytest.raises(UserFunctionError):
        summed(store, parallelism, breaks=True, **settings)
    checkpoints = asyncio.run(read_slots(store)).checkpoints
    return store, checkpoints[max(checkpoints)]


@pytest.mark.parametrize(
    ("before", "after"), [(3, 5), (8, 1), *more_in_depth([], [(1, 8), (4, 4)])]
)
def test_each_block_is_fetched_and_its_changes_counted_once(before: int, after: int) -> None:
    store, last = broken_off(before)
    ranges = {r for _, state in last.subtasks() for r in state.log}
    changes = sum(state.seqno for _, state in last.subtasks())
    assert len({r.segment for r in ranges}) > 4
    store.reads.clear()
    store.bytes.clear()

    results, restore = summed(store, after)
    assert results == SUMS
    read = {n: bytes for n, bytes in store.bytes.items() if n.startswith(object_names.SEGMENTS)}
    assert read.keys() == {r.segment for r in ranges}
    assert {store.reads[name] for name in read} == {1}
    assert sum(read.values()) == sum(r.length for r in ranges)
    assert (restore.bytes, restore.changes) == (restore.total_bytes, restore.total_changes)
    assert restore.total_changes == changes
    assert restore.total_bytes == sum(read.values())


@pytest.mark.parametrize(
    ("before", "after"), [(1, 8), (4, 4), *more_in_depth([], [(2, 3), (8, 1)])]
)
def test_each_block_of_a_manifest_is_decoded_once(
    before: int, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, last = broken_off(before, inline_bytes=1 << 30)
    inline = {data for _, state in last.subtasks() for data in state.inline}
    assert len(inline) > 4 and not any(state.log for _, state in last.subtasks())

    decoded: Counter[tuple[int, bytes]] = Counter()
    changes = Block.changes

    def counted(self: Block) -> ChangeBatch:
        decoded[self.first, self.body] += 1
        return changes(self)

    monkeypatch.setattr(Block, "changes", counted)
    assert summed(store, after, inline_bytes=1 << 30)[0] == SUMS
    assert len(decoded) > 2
    assert set(decoded.values()) == {1}


@pytest.mark.parametrize("read_ahead", [1, 3000, *more_in_depth([], [40_000])])
def test_the_values_are_the_same_with_hardly_any_room_to_share(read_ahead: int) -> None:
    store, _ = broken_off(3)
    bounds = RestoreConfig(read_ahead_bytes=read_ahead, replay_bytes=20_000)
    assert summed(store, 5, restore=bounds)[0] == SUMS
