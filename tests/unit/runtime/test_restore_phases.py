"""A status tells what the time of a restore was spent on."""

import asyncio
from operator import add
from pathlib import Path
from typing import Any

import pytest

from tests.support.clock import VirtualClock
from tidelog.checkpoint.schedule import Schedule
from tidelog.connectors.program import Callback, Rate
from tidelog.effects import Effects, InlineOffload
from tidelog.materialize.config import MaterializeConfig
from tidelog.runtime.config import JobConfig
from tidelog.runtime.graph import Job
from tidelog.runtime.runner import JobRunner
from tidelog.runtime.status.checkpoints import RestorePhases
from tidelog.runtime.status.observe import status_of
from tidelog.runtime.status.status import JobStatus
from tidelog.state.config import RestoreConfig
from tidelog.storage.memory import MemoryStore

SEGMENT_S, TABLE_FILE_S = 2.0, 3.0


class _Far(MemoryStore):
    """Reading takes time once there is a clock for it."""

    clock: VirtualClock | None = None

    async def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        if self.clock is not None and name.startswith("segments/"):
            await self.clock.sleep(SEGMENT_S)
        elif self.clock is not None and not name.startswith("checkpoints/"):
            await self.clock.sleep(TABLE_FILE_S)
        return await super().get(name, start, length)


def _runner(store: MemoryStore, work_dir: Path, effects: Effects, **settings: Any) -> JobRunner:
    job = Job("counting")
    counts = job.source(Rate(None)).key_by(lambda n: n % 5000).aggregate(lambda n: 1, add)
    counts.sink(Callback(lambda record: None))
    config = JobConfig(work_dir=work_dir, checkpoint=Schedule(interval=0.02), **settings)
    return JobRunner(job, store, config, effects)


async def _until(runner: JobRunner, what: Any) -> None:
    running = asyncio.ensure_future(runner.run())
    while not what(status_of(runner)):
        assert not running.done(), running
        await asyncio.sleep(0.002)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def _restored(runner: JobRunner) -> JobStatus:
    """The status at the moment the tasks begin to run."""
    seen: list[JobStatus] = []
    up = asyncio.Event()

    def started() -> None:
        seen.append(status_of(runner))
        up.set()

    running = asyncio.ensure_future(runner.run(started))
    await up.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return seen[0]


def _table(status: JobStatus) -> bool:
    sizes = status.checkpoints.sizes
    return sizes is not None and sizes.materialized_full_bytes > 20_000


def _long_log(status: JobStatus) -> bool:
    sizes = status.checkpoints.sizes
    return sizes is not None and sizes.log_full_bytes > 1e5


@pytest.mark.parametrize("changelog", [True, False])
def test_the_phases_take_the_time_that_their_requests_take(tmp_path: Path, changelog: bool) -> None:
    """In virtual time only the store takes any, so the values are exact."""
    store = _Far("memory://s")
    settings: dict[str, Any] = {
        "changelog": changelog,
        "restore": RestoreConfig(concurrency=1000),
    }
    often, never = MaterializeConfig(interval=0.1), MaterializeConfig(interval=1e6)
    first = _runner(store, tmp_path, Effects(), materialize=often, **settings)
    asyncio.run(_until(first, _table))
    if changelog:
        second = _runner(store, tmp_path, Effects(), materialize=never, **settings)
        asyncio.run(_until(second, _long_log))
    store.clock = VirtualClock()
    effects = Effects(clock=store.clock, offload=InlineOffload())
    status = asyncio.run(_restored(_runner(store, tmp_path, effects, **settings)))
    assert status.restore is not None
    log_s = SEGMENT_S if changelog else 0.0
    # The descriptor, then all files at once; the log beside them.
    assert status.restore.phases == RestorePhases(2 * TABLE_FILE_S, 0.0, log_s, 0.0)
    assert status.restore.seconds == 2 * TABLE_FILE_S
