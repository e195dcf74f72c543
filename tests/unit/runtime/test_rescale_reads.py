"""A restore reads each byte once, into however many subtasks it goes."""

import asyncio
from collections import Counter

import pytest

from tests.support.clock import in_virtual_time
from tests.support.depth import more_in_depth
from tests.unit.verify.stores import CountingStore
from tidelog import (
    Callback,
    Checkpoint,
    Effects,
    Job,
    JobConfig,
    JobRunner,
    MaterializeConfig,
    Rate,
    RestoreConfig,
    Schedule,
    UploadConfig,
    UserFunctionError,
    status_of,
)
from tidelog.catalog.inventory import read_slots
from tidelog.changelog.block import Block
from tidelog.changelog.change import ChangeBatch
from tidelog.runtime.status.checkpoints import RestoreStatus
from tidelog.storage import object_names

KEYS = 200
RECORDS = 7_500
BREAK = 6_000


def job(world: Effects, results: dict[int, int], breaks: bool) -> Job:
    def value(n: int) -> int:
        if breaks and n >= BREAK:
            raise ValueError("the machine breaks")
        return n

    job = Job("sums")
    source = Rate(1000, limit=RECORDS, clock=world.clock)
    sums = job.source(source, parallelism=1).key_by(lambda n: n % KEYS).sum(value)
    sums.sink(Callback(lambda record: results.__setitem__(*record)))
    return job


def run(
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
        checkpoint=Schedule(interval=0.5),
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
        run(store, parallelism, breaks=True, **settings)
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

    results, restore = run(store, after)
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
        decoded[self.first, self.stored] += 1
        return changes(self)

    monkeypatch.setattr(Block, "changes", counted)
    assert run(store, after, inline_bytes=1 << 30)[0] == SUMS
    assert len(decoded) > 2
    assert set(decoded.values()) == {1}


@pytest.mark.parametrize("read_ahead", [1, 3000, *more_in_depth([], [40_000])])
def test_the_values_are_the_same_with_hardly_any_room_to_share(read_ahead: int) -> None:
    store, _ = broken_off(3)
    bounds = RestoreConfig(read_ahead_bytes=read_ahead, replay_bytes=20_000)
    assert run(store, 5, restore=bounds)[0] == SUMS
