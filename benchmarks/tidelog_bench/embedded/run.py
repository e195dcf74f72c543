"""One measured run of a job: fill, warm up, measure, stop hard.

Invariants: a run is described by its spec alone; everything else is the library's default. Only
what happened between the first and the last moment of the measured time counts.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from tidelog.checkpoint.schedule import Schedule
from tidelog.effects import Effects
from tidelog.materialize.config import MaterializeConfig
from tidelog.runtime.config import DEFAULT_KEY_GROUPS, JobConfig
from tidelog.runtime.graph import Job
from tidelog.runtime.runner import JobRunner
from tidelog.runtime.status.distribution import percentile
from tidelog.runtime.subtasks.incarnation import Incarnation
from tidelog.storage import object_names
from tidelog.storage.local import LocalStore
from tidelog.storage.memory import MemoryStore
from tidelog.storage.port import ObjectStore
from tidelog_bench.embedded.meter import CLOCK, Mark, rates, rss_mb
from tidelog_bench.embedded.words import Stages, Words, Workload, draw
from tidelog_bench.experiment import Trial
from tidelog_bench.store.latency import NONE, LatencyProfile
from tidelog_bench.store.modelled import ModelledStore, Traffic, Write

_LOOK_S: Final = 0.02
"""Rarely enough to cost a job nothing; moments are taken when they are, not when they are seen."""
SOON_S: Final = 0.002


@dataclass(frozen=True)
class RunSpec:
    """What a run is; times in seconds."""

    workload: Workload
    changelog: bool = True
    checkpoint_s: float = 1.0
    materialize_s: float | None = None
    """Seconds between materializations; None: the library's default."""
    replay_s: float | None = None
    """Longest replay before a table is materialized early; None: the default."""
    warm_s: float = 5.0
    seconds: float = 30.0
    records: int | None = None
    rate: float | None = None
    link: LatencyProfile | None = None
    """The network to the store; None: the store is as fast as the disk."""
    copies: str | None = None
    """A directory for local recovery."""
    filled: bool = True
    """Every word is counted once before the warm-up."""
    parallelism: int = 1
    key_groups: int = DEFAULT_KEY_GROUPS
    retain: int = 3
    """How many of the newest checkpoints are retained."""
    seed: int = 1
    options: Mapping[str, Any] = field(default_factory=dict)
    """Further options of the job."""

    def words(self) -> Words:
        words = draw(self.workload, self.seed)
        return words if self.filled else Words([], words.stream)

    def config(self, work_dir: Path) -> JobConfig:
        default = MaterializeConfig()
        chosen: dict[str, Any] = {
            "parallelism": self.parallelism,
            "key_groups": self.key_groups,
            "retain": self.retain,
            "changelog": self.changelog,
            "work_dir": work_dir,
            "local_recovery": Path(self.copies) if self.copies else None,
            "checkpoint": Schedule(interval=self.checkpoint_s),
            "materialize": MaterializeConfig(
                interval=self.materialize_s or default.interval,
                replay_target=self.replay_s or default.replay_target,
            ),
            **self.options,
        }
        return JobConfig(**chosen)

    def store(self, inner: ObjectStore, effects: Effects) -> ModelledStore:
        """A store over the link, if there is one, that counts its requests."""
        own_loop = self.link is not None
        return ModelledStore(inner, effects.clock, self.link or NONE, own_loop=own_loop)


def spec_of(trial: Trial, **more: Any) -> RunSpec:
    """The run that the settings of a trial describe, with its workload and, where the settings have
    a latency, its link; `more` are fields that are not among the settings, or not as in the run.
    """
    given = {**trial.settings, **more}
    link = trial.read(LatencyProfile) if "latency_ms" in given else None
    return trial.read(RunSpec, **{"workload": given, "link": link, **more})


@dataclass(frozen=True, slots=True)
class Moment:
    """The beginning or the end of the measured time, and what the run had done by then."""

    mark: Mark
    totals: Traffic
    """What the store had been asked for."""
    checkpoints: int
    backpressured_s: float
    """Seconds that writers have waited for uploads."""
    table_bytes: int
    rss_mb: float


@dataclass
class Run:
    """A job under measurement; hooks see it while it runs."""

    runner: JobRunner
    store: ModelledStore
    stages: Stages
    archive: MemoryStore
    """The manifests and descriptors of a run in memory, also those that the job has deleted."""
    begun: Moment | None = None
    ended: Moment | None = None

    def begin(self, mark: Mark) -> None:
        self.begun = self._moment(mark)

    def end(self, mark: Mark) -> None:
        self.ended = self._moment(mark)

    @property
    def incarnation(self) -> Incarnation:
        """What runs, or has run."""
        assert self.runner.incarnation is not None
        return self.runner.incarnation

    @property
    def completed(self) -> int:
        """Checkpoints until now."""
        return self.incarnation.driver.metrics.completed

    @property
    def measured(self) -> tuple[Moment, Moment]:
        assert self.begun is not None and self.ended is not None
        return self.begun, self.ended

    @property
    def traffic(self) -> Traffic:
        """What the store was asked for within the measured time."""
        begun, ended = self.measured
        return ended.totals.since(begun.totals)

    @property
    def written(self) -> list[Write]:
        """What the job wrote within the measured time."""
        begun, ended = self.measured
        return [w for w in self.store.writes if begun.mark.wall <= w.ended <= ended.mark.wall]

    @property
    def durations_s(self) -> list[float]:
        """How long the checkpoints took that completed within the measured time."""
        begun, ended = self.measured
        metrics = self.incarnation.driver.metrics
        # The metrics have the newest ones only.
        gone = metrics.completed - len(metrics.durations_s)
        first, end = max(0, begun.checkpoints - gone), ended.checkpoints - gone
        return list(metrics.durations_s)[first:end]

    def _moment(self, mark: Mark) -> Moment:
        uploader = self.incarnation.start.uploader
        return Moment(
            mark,
            self.store.totals(),
            self.completed,
            uploader.metrics.backpressured_s if uploader is not None else 0.0,
            sum(task.parts.backend.table.size_bytes() for task in self.incarnation.tasks),
            rss_mb(),
        )

    def figures(self) -> dict[str, float]:
        """Throughput, cost, checkpoints, uploads, memory."""
        begun, ended = self.measured
        traffic = self.traffic
        durations = self.durations_s
        found = {
            **rates(begun.mark, ended.mark),
            "checkpoints": len(durations),
            "checkpoints_failed": self.incarnation.driver.metrics.failed,
            "table_mb": round(ended.table_bytes / 1e6, 1),
            "rss_mb": round(ended.rss_mb),
            "backpressured_s": round(ended.backpressured_s - begun.backpressured_s, 3),
        }
        if durations:
            found["checkpoint_p50_ms"] = round(percentile(durations, 0.5) * 1e3, 1)
        if traffic.seconds:
            found["uploaded_mb_per_s"] = round(traffic.uploaded_bytes / traffic.seconds / 1e6, 3)
        return found


class ArchivedStore(MemoryStore):
    """A store in memory; `archive` has every manifest and descriptor of the run, also those that
    the job has deleted.
    """

    def __init__(self) -> None:
        super().__init__()
        self.archive = MemoryStore()

    def _store(self, name: str, data: bytes) -> None:
        super()._store(name, data)
        if name.startswith((object_names.CHECKPOINTS, object_names.MATERIALIZATIONS)):
            self.archive._store(name, data)


BuildJob = Callable[[Stages], Job]
Watch = Callable[[Run], Awaitable[None]]


@contextlib.asynccontextmanager
async def started(
    runner: JobRunner, on_started: Callable[[], None] | None = None
) -> AsyncIterator["asyncio.Task[Any]"]:
    """Run a job, and stop it hard at the end."""
    running = asyncio.ensure_future(runner.run(on_started))
    try:
        yield running
    finally:
        await stopped(running)


async def stopped(task: "asyncio.Future[Any]") -> None:
    """Cancel a task that runs, and wait until it has ended."""
    if not task.done():
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def until(
    reached: Callable[[], bool], *tasks: "asyncio.Future[Any]", look_s: float = SOON_S
) -> None:
    """Wait; a job or a hook that fails meanwhile raises."""
    while not reached():
        for task in tasks:
            if task.done():
                task.result()
        await CLOCK.sleep(look_s)


def run_trial(
    spec: RunSpec,
    build: BuildJob,
    room: Path,
    *,
    watch: Watch | None = None,
    store: Path | None = None,
) -> Run:
    """Run a spec in this process; `watch` runs while the job does. `room` is for temporary files.

    With a directory for the store the job is stopped right after a checkpoint that covers all
    records, and the store stays. Without, the store lies in memory, and the job is stopped at once.
    """
    stages = Stages(
        spec.words(),
        warm_s=spec.warm_s,
        seconds=spec.seconds,
        records=spec.records,
        rate=spec.rate,
        on_start=lambda mark: run.begin(mark),  # noqa: PLW0108  (there is no run yet)
        on_end=lambda mark: run.end(mark),  # noqa: PLW0108
    )
    effects, memory = Effects(), ArchivedStore()
    seen = spec.store(LocalStore(store, effects) if store else memory, effects)

    async def main() -> None:
        async with started(run.runner) as job:
            watching = asyncio.ensure_future(watch(run) if watch else CLOCK.sleep(0))
            try:
                await until(lambda: run.ended is not None, job, watching, look_s=_LOOK_S)
                if store is not None:
                    # One may have begun before the last record; the one after it has them all.
                    whole = run.completed + 2
                    await until(lambda: run.completed >= whole, job)
            finally:
                await stopped(watching)

    with (
        TemporaryDirectory(dir=room, ignore_cleanup_errors=True) as work,
        contextlib.closing(effects.offload),
    ):
        runner = JobRunner(build(stages), seen, spec.config(Path(work)), effects)
        run = Run(runner, seen, stages, memory.archive)
        asyncio.run(main())
        return run
