"""What checkpoints and restarts of today's code take behind the model of a store, in virtual time.

The whole runtime is real, RocksDB included; clock and store are models. Code takes no time on this
clock, so what is measured is requests and bytes alone.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from tests.property.estimate_simulation import a_job, configured
from tests.support.clock import VirtualClock
from tidelog.cost.model.settings import Settings
from tidelog.cost.model.workload import Workload
from tidelog.effects import Effects, InlineOffload
from tidelog.runtime.config import JobConfig
from tidelog.runtime.runner import JobRunner
from tidelog.storage.memory import MemoryStore
from tidelog_bench.store.latency import Kind, LatencyProfile
from tidelog_bench.store.modelled import ModelledStore, Traffic


@dataclass(frozen=True)
class Restart:
    """From the start of the process to running tasks."""

    seconds: float
    requests: Mapping[Kind, int]


@dataclass(frozen=True)
class Behind:
    """What was measured."""

    checkpoints_s: list[float]
    """Each from its barrier to the proof that it counts."""
    traffic: Traffic
    """While these checkpoints were taken."""
    restarts: list[Restart]
    """After a crash at one moment each."""

    @property
    def longest(self) -> Restart:
        return max(self.restarts, key=lambda restart: restart.seconds)


def behind_a_store(
    workload: Workload,
    settings: Settings,
    *,
    warm_s: float,
    seconds: float,
    crashes: int = 16,
    changelog: bool = True,
) -> Behind:
    """Run the job for `warm_s`, measure `seconds`, in which it crashes at even distances."""
    clock = VirtualClock()
    inner = MemoryStore()
    store = ModelledStore(inner, clock, _manners(settings))
    copies: list[dict[str, bytes]] = []

    async def scenario(config: JobConfig) -> tuple[list[float], Traffic]:
        rng = Random(1)
        job = a_job(workload, clock, rng, 10 * (warm_s + seconds))
        runner = JobRunner(job, store, config, Effects(clock, rng, InlineOffload()))
        running = asyncio.ensure_future(runner.run())
        await clock.sleep(warm_s)
        assert runner.incarnation is not None
        before, first = store.totals(), runner.incarnation.driver.metrics.completed
        for _ in range(crashes):
            await clock.sleep(seconds / crashes)
            copies.append(dict(inner._objects))
        assert not running.done(), running
        traffic = store.totals().since(before)
        durations = runner.incarnation.driver.metrics.durations_s[first:]
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return durations, traffic

    with configured(settings, changelog=changelog) as config:
        durations, traffic = asyncio.run(scenario(config))
        restarts = [_restart(workload, settings, config, objects) for objects in copies]
    return Behind(durations, traffic, restarts)


def _restart(
    workload: Workload, settings: Settings, config: JobConfig, objects: Mapping[str, bytes]
) -> Restart:
    async def scenario() -> Restart:
        clock, inner = VirtualClock(), MemoryStore()
        for name, data in objects.items():
            await inner.put(name, data)
        store = ModelledStore(inner, clock, _manners(settings))
        job = a_job(workload, clock, Random(2), 1e9)
        runner = JobRunner(job, store, config, Effects(clock, Random(3), InlineOffload()))
        up = asyncio.Event()
        running = asyncio.ensure_future(runner.run(up.set))
        # A start that fails must not be waited for.
        running.add_done_callback(lambda _: up.set())
        await up.wait()
        assert not running.done(), running
        found = Restart(clock.monotonic(), dict(store.requests))
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return found

    return asyncio.run(scenario())


def _manners(settings: Settings) -> LatencyProfile:
    link = settings.link
    return LatencyProfile(latency_ms=link.latency_s * 1e3, mb_per_s=link.bytes_per_s / 1e6)
