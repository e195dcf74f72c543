"""Alerts fired by the faults they are for: whole jobs in virtual time, looked at every minute, and
Prometheus's own evaluation of what was seen.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import pytest

from tests.support.clock import VirtualClock
from tests.support.faults import Fault, FaultKind, FaultyStore
from tests.support.pipelines import config, running
from tests.support.prometheus import check_alerts, firing, needs_prometheus
from tidelog import (
    CheckpointConfig,
    ForeachSink,
    Job,
    JobRunner,
    JsonLinesSource,
    MaterializeConfig,
    RateSource,
    TextFileSource,
    Tumbling,
    UploadConfig,
    status_of,
)
from tidelog.effects import Effects, InlineOffload
from tidelog.runtime.status.serving import StatusCollector
from tidelog.storage import object_names
from tidelog.storage.memory import MemoryStore
from tidelog.storage.port import ObjectStore
from tidelog.storage.retry import RetryingStore
from tidelog.storage.retry_policy import LOCAL_POLICY

pytestmark = needs_prometheus

START_MS = 1_700_000_000_000
MINUTES = 65
"""Longer than every range of the alerts, with its offset."""
AGAIN_S = 20.0
"""After so long a unit starts a job again that has failed."""
STATE = (object_names.SEGMENTS, object_names.TABLES)


@dataclass
class World:
    """What the definition of a job gets: its clock and the directory of its files."""

    clock: VirtualClock
    directory: Path


def counting(world: World) -> Job:
    job = Job("job")
    numbers = job.source(RateSource(0.05, clock=world.clock)).key_by(lambda n: n % 50)
    numbers.aggregate(lambda n: 1, lambda a, b: a + b).sink(ForeachSink(lambda record: None))
    return job


def late(world: World) -> Job:
    """Every second record comes after event time has passed it."""
    job = Job("job")
    rate = RateSource(0.05, clock=world.clock)
    timed = job.source(rate).event_time(lambda n: START_MS + 1000 * n - n % 2 * 10**9)
    windows = timed.key_by(lambda n: n % 5).window(Tumbling(1000))
    windows.aggregate(lambda n: 1, lambda a, b: a + b).sink(ForeachSink(lambda record: None))
    return job


def standing(world: World) -> Job:
    """One of two followed files has no lines, so event time is not known."""
    (world.directory / "empty.txt").touch()
    job = Job("job")
    lines = job.source(TextFileSource(world.directory, follow=True))
    timed = lines.event_time(lambda line: START_MS + int(line)).key_by(lambda line: 0)
    timed.window(Tumbling(1000)).aggregate(lambda _: 1, lambda a, b: a + b).sink(ForeachSink(print))
    return job


def skipping(world: World) -> Job:
    """No line is an object."""
    job = Job("job")
    rows = job.source(JsonLinesSource(world.directory, on_error="skip", follow=True))
    rows.sink(ForeachSink(lambda row: None))
    return job


def slow(world: World) -> Job:
    """A function takes longer for a line than there is until the next one."""
    job = Job("job")
    lines = job.source(TextFileSource(world.directory, follow=True, chunk_bytes=64))
    lines.rebalance().map(lambda line: world.clock.spend(5)).sink(ForeachSink(lambda record: None))
    return job


def failing(operation: str, prefix: str) -> Fault:
    return Fault(FaultKind.FAIL, operation, prefix)


@dataclass
class Faulty:
    """A job with a fault, started again whenever it fails, and what each minute's scrape finds."""

    define: Callable[[World], Job]
    directory: Path
    faults: tuple[Fault, ...] = ()
    store: MemoryStore = field(default_factory=MemoryStore)
    series: dict[str, list[str]] = field(default_factory=dict)

    async def run(self) -> None:
        """An hour of it; where reads will stall, there is state to be read."""
        self.world = World(VirtualClock(), self.directory / "in")
        self.world.directory.mkdir()
        self.effects = Effects(self.world.clock, Random(1), InlineOffload())
        if any(fault.kind is FaultKind.STALL for fault in self.faults):
            await self._prepare()
        keeping_up = asyncio.ensure_future(self._keep_up())
        await self._look_every_minute()
        keeping_up.cancel()
        await asyncio.gather(keeping_up, return_exceptions=True)

    async def _prepare(self) -> None:
        runner = self._runner(self.store)
        async with running(runner):
            while status_of(runner).materializations.completed < 4:
                await self.world.clock.sleep(1)

    async def _keep_up(self) -> None:
        """As a unit of systemd does: a process after the other."""
        # A store that never answers is waited for: giving up would be a restart.
        stalls = any(fault.kind is FaultKind.STALL for fault in self.faults)
        while True:
            store: ObjectStore = FaultyStore(self.store, self.faults, self.world.clock)
            if not stalls:
                policy = replace(LOCAL_POLICY, deadline=5.0, first_backoff=2.0)
                store = RetryingStore(store, policy, self.effects)
            self.runner: JobRunner | None = self._runner(store)
            self.started_s = self.world.clock.monotonic()
            async with running(self.runner) as task:
                await asyncio.wait([task])
            self.runner = None
            await self.world.clock.sleep(AGAIN_S)

    def _runner(self, store: ObjectStore) -> JobRunner:
        settings = config(
            work_dir=self.directory / "work",
            parallelism=1,
            upload=UploadConfig(inline_bytes=100, linger=10.0),
            checkpoint=CheckpointConfig(interval=60, tolerable_failures=10**6),
            materialize=MaterializeConfig(interval=120, tolerable_failures=10**6, retry_pause=5),
        )
        return JobRunner(self.define(self.world), store, settings, self.effects)

    async def _look_every_minute(self) -> None:
        for minute in range(MINUTES):
            with (self.world.directory / "lines.txt").open("a") as file:
                file.writelines(f"{number}\n" for number in range(60))
            await self.world.clock.sleep(60 * (minute + 1) - self.world.clock.monotonic())
            found = {'up{job="tidelog",instance="a"}': 1.0 if self.runner else 0.0}
            if self.runner is not None:
                found['process_start_time_seconds{job="tidelog",instance="a"}'] = self.started_s
                collector = StatusCollector(self.world.clock.monotonic)
                collector.update(status_of(self.runner))
                for family in collector.collect():
                    for sample in family.samples:
                        labels = sample.labels | {"job": "tidelog", "instance": "a"}
                        written = ",".join(f'{name}="{value}"' for name, value in labels.items())
                        found[f"{sample.name}{{{written}}}"] = sample.value
            for name in self.series.keys() | found.keys():
                values = self.series.setdefault(name, ["_"] * minute)
                values.append(str(found.get(name, "stale")))


@pytest.mark.parametrize(
    ("define", "faults", "alerts"),
    [
        pytest.param(counting, (), (), id="sound"),
        pytest.param(
            counting,
            (Fault(FaultKind.FAIL),),
            ("JobNotRunning", "NoCheckpoint", "Restarts", "TargetDown"),
            id="unreached",
        ),
        pytest.param(
            counting,
            tuple(Fault(FaultKind.STALL, "get", prefix) for prefix in STATE),
            ("RestoreStalled",),
            id="restoring",
        ),
        pytest.param(
            counting,
            (failing("put", ""),),
            (
                "CheckpointsFailing",
                "MaterializationsFailing",
                "NoCheckpoint",
                "StoreFailures",
                "UploadRetries",
            ),
            id="refused",
        ),
        pytest.param(
            counting,
            (failing("put", object_names.MATERIALIZATIONS),),
            ("MaterializationsFailing", "StoreFailures"),
            id="unmaterialized",
        ),
        pytest.param(late, (), ("LateRecords",), id="late"),
        pytest.param(standing, (), ("EventTimeStands",), id="standing"),
        pytest.param(skipping, (), ("RecordsSkipped",), id="skipping"),
        pytest.param(
            slow, (), ("BackPressure", "InputPilesUp", "RecordLatency", "Standstills"), id="slow"
        ),
    ],
)
def test_each_fault_fires_its_alerts_and_a_sound_job_fires_none(
    define: Callable[[World], Job],
    faults: tuple[Fault, ...],
    alerts: tuple[str, ...],
    tmp_path: Path,
) -> None:
    job = Faulty(define, tmp_path, faults)
    asyncio.run(job.run())
    series = {name: " ".join(values) for name, values in job.series.items()}
    check_alerts(
        tmp_path,
        "alerts.yml",
        [firing(series, *(f"Tidelog{alert}" for alert in alerts), minutes=MINUTES - 1)],
    )
