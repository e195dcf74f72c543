"""Alerts fired by the faults they are for: real jobs, a real Prometheus, a second for a minute."""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import tidelog
from tests.process.harness import ROOT
from tests.support.faults import Fault, FaultKind, FaultyStore
from tests.support.pipelines import running
from tests.support.ports import free_port
from tests.support.prometheus import OPERATIONS, in_seconds, needs_prometheus, server
from tidelog import (
    CheckpointConfig,
    ForeachSink,
    Job,
    JobConfig,
    JobRunner,
    JsonLinesSource,
    MaterializeConfig,
    RateSource,
    TextFileSource,
    Tumbling,
)
from tidelog.effects import Effects, SystemClock
from tidelog.storage import object_names
from tidelog.storage.memory import MemoryStore
from tidelog.storage.port import ObjectStore
from tidelog.storage.retry import RetryingStore
from tidelog.storage.retry_policy import LOCAL_POLICY

pytestmark = needs_prometheus

START_MS = 1_700_000_000_000
GIVE_UP_S = 120.0
STATE = (object_names.SEGMENTS, object_names.TABLES)
PATIENT = CheckpointConfig(interval=0.2, tolerable_failures=1_000_000)


def counting(name: str, records_per_s: float = 200) -> Job:
    job = Job(name)
    numbers = job.source(RateSource(records_per_s)).key_by(lambda n: n % 50)
    numbers.aggregate(lambda n: 1, lambda a, b: a + b).sink(ForeachSink(lambda record: None))
    return job


def late(directory: Path) -> Job:
    """Every second record comes after event time has passed it."""
    job = Job("late")
    timed = job.source(RateSource(200)).event_time(lambda n: START_MS + 1000 * n - n % 2 * 10**9)
    windows = timed.key_by(lambda n: n % 5).window(Tumbling(1000))
    windows.aggregate(lambda n: 1, lambda a, b: a + b).sink(ForeachSink(lambda record: None))
    return job


def standing(directory: Path) -> Job:
    """One of two followed files has no lines, so event time is not known."""
    (directory / "empty.txt").touch()
    job = Job("standing")
    lines = job.source(TextFileSource(directory, follow=True))
    timed = lines.event_time(lambda line: START_MS + int(line)).key_by(lambda line: 0)
    timed.window(Tumbling(1000)).aggregate(lambda _: 1, lambda a, b: a + b).sink(ForeachSink(print))
    return job


def skipping(directory: Path) -> Job:
    """Half of the lines are no objects."""
    job = Job("skipping")
    rows = job.source(JsonLinesSource(directory, on_error="skip", follow=True))
    rows.sink(ForeachSink(lambda row: None))
    return job


def slow(directory: Path) -> Job:
    """A function takes longer for a line than there is until the next one."""
    job = Job("slow")
    lines = job.source(TextFileSource(directory, follow=True, chunk_bytes=64))
    lines.rebalance().map(lambda line: time.sleep(0.01)).sink(ForeachSink(lambda record: None))
    return job


@dataclass
class Faulty:
    """A job with a fault, started again whenever it fails, and its figures on a port."""

    job: Callable[[Path], Job]
    directory: Path
    faults: tuple[Fault, ...] = ()
    store: MemoryStore = field(default_factory=MemoryStore)
    port: int = field(default_factory=free_port)
    effects: Effects = field(default_factory=Effects)

    def __post_init__(self) -> None:
        self.input = self.directory / "in"
        self.input.mkdir(parents=True)

    def runner(self, *, sound: bool = False) -> JobRunner:
        store: ObjectStore = self.store
        if not sound:
            policy = replace(LOCAL_POLICY, deadline=0.5)
            faulty = FaultyStore(store, self.faults, SystemClock())
            # A store that never answers is waited for: giving up would be a restart.
            stalls = any(fault.kind is FaultKind.STALL for fault in self.faults)
            store = faulty if stalls else RetryingStore(faulty, policy, self.effects)
        config = JobConfig(
            work_dir=self.directory / "work",
            checkpoint=PATIENT,
            materialize=MaterializeConfig(interval=0.3, tolerable_failures=10**6, retry_pause=0.2),
        )
        return JobRunner(self.job(self.input), store, config, self.effects)

    async def run(self) -> None:
        """Run the job, again after each failure, until this coroutine is cancelled."""
        with tidelog.serve_metrics(self.port) as update:
            while True:
                runner = self.runner()
                async with running(runner) as task:
                    while not task.done():
                        self._add_lines()
                        update(tidelog.status_of(runner))
                        await asyncio.wait([task], timeout=0.1)
                await asyncio.sleep(0.2)

    async def prepared(self) -> None:
        """Let it complete some checkpoints without its fault."""
        runner = self.runner(sound=True)
        async with running(runner) as task:
            while tidelog.status_of(runner).materializations.completed < 4:
                await asyncio.wait([task], timeout=0.05)

    def _add_lines(self) -> None:
        with (self.input / "lines.txt").open("a") as file:
            file.writelines(f"{number}\n" for number in range(40))


@dataclass
class Restarting:
    """A job that cannot reach its store, and a unit that starts it again each time it ends."""

    directory: Path
    port: int = field(default_factory=free_port)

    async def run(self) -> None:
        command = [
            *("-m", "tidelog", "run", "wordcount", "--input", str(self.directory), "--quiet"),
            *("--store", "s3://bucket/job", "--endpoint", f"http://127.0.0.1:{free_port()}"),
            *("--retry-deadline", "2s", "--metrics-port", str(self.port)),
        ]
        keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "us-east-1"}
        while True:
            process = await asyncio.create_subprocess_exec(
                sys.executable, *command, cwd=ROOT, env=os.environ | keys
            )
            try:
                await process.wait()
            finally:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()


@asynccontextmanager
async def all_running(jobs: list[Any]) -> AsyncIterator[None]:
    tasks = [asyncio.ensure_future(job.run()) for job in jobs]
    try:
        yield
        for task in tasks:
            assert not task.done(), task
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def failing(operation: str, prefix: str) -> Fault:
    return Fault(FaultKind.FAIL, operation, prefix)


async def fired(directory: Path, expected: set[tuple[str, str]], jobs: list[Any]) -> set[Any]:
    """The alerts that fire until all of these have, with their job or else their target."""
    rules = directory / "alerts.yml"
    rules.write_text(in_seconds((OPERATIONS / "alerts.yml").read_text()))
    seen: set[tuple[str, str]] = set()
    nobody = free_port()
    give_up = time.monotonic() + GIVE_UP_S
    with server(directory, nobody, *(job.port for job in jobs), rules=rules) as prometheus:
        async with all_running(jobs):
            while not expected | {("TidelogTargetDown", target(nobody))} <= seen:
                assert time.monotonic() < give_up, f"only {sorted(seen)}"
                with suppress(OSError):  # not up yet
                    query = 'ALERTS{alertstate="firing"}'
                    for sample in await asyncio.to_thread(prometheus.samples, query):
                        labels = sample["metric"]
                        who = labels.get("job_name", labels.get("instance"))
                        seen.add((labels["alertname"], who))
                await asyncio.sleep(0.5)
    return seen


def target(port: int) -> str:
    return f"127.0.0.1:{port}"


def test_each_fault_fires_its_alert_and_a_sound_job_fires_none(tmp_path: Path) -> None:
    """A store away from the start on is met by a job that a unit starts again and again."""

    def faulty(name: str, job: Callable[[Path], Job], *faults: Fault) -> Faulty:
        return Faulty(job, tmp_path / name, faults)

    def of(name: str) -> Callable[[Path], Job]:
        return lambda _: counting(name)

    restoring = faulty(
        *("restoring", of("restoring")),
        *(Fault(FaultKind.STALL, "get", prefix) for prefix in STATE),
    )
    (tmp_path / "unreached").mkdir()
    unreached = Restarting(tmp_path / "unreached")
    jobs = [
        *(restoring, unreached),
        faulty("sound", of("sound")),
        faulty("refused", of("refused"), failing("put", "")),
        faulty("unmaterialized", of("unmaterialized"), failing("put", object_names.TABLES)),
        faulty("late", late),
        faulty("standing", standing),
        faulty("skipping", skipping),
        faulty("slow", slow),
    ]
    expected = {
        ("TidelogJobNotRunning", "wordcount"),
        ("TidelogRestarts", target(unreached.port)),
        ("TidelogRestoreStalled", "restoring"),
        ("TidelogCheckpointsFailing", "refused"),
        ("TidelogNoCheckpoint", "refused"),
        ("TidelogStoreFailures", "refused"),
        ("TidelogMaterializationsFailing", "unmaterialized"),
        ("TidelogLateRecords", "late"),
        ("TidelogEventTimeStands", "standing"),
        ("TidelogRecordsSkipped", "skipping"),
        ("TidelogInputPilesUp", "slow"),
    }

    async def run() -> set[Any]:
        await restoring.prepared()
        return await fired(tmp_path, expected, jobs)

    seen = asyncio.run(run())
    assert not {alert for alert, who in seen if who == "sound"} & {alert for alert, _ in expected}
    for job in jobs:
        if isinstance(job, Faulty):
            job.effects.offload.close()
