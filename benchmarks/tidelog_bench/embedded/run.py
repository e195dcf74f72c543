"""One measured run of a job: fill, warm up, measure, stop hard.

Invariants: a run is described by its spec alone; everything else is the library's default. Only
what happened between the first and the last moment of the measured time counts.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from tidelog.checkpoint.config import CheckpointConfig
from tidelog.effects import Effects
from tidelog.materialize.schedule import MaterializeConfig
from tidelog.runtime.config import DEFAULT_KEY_GROUPS, JobConfig
from tidelog.runtime.graph import Job
from tidelog.runtime.runner import JobRunner
from tidelog.runtime.status.distribution import percentile
from tidelog.runtime.status.observe import status_of
from tidelog.runtime.status.status import JobStatus
from tidelog.runtime.subtasks.incarnation import Incarnation
from tidelog.storage import object_names
from tidelog.storage.local import LocalStore
from tidelog.storage.memory import MemoryStore
from tidelog.storage.port import ObjectStore
from tidelog_bench.embedded.meter import CLOCK, Mark, rates, rss_mb
from tidelog_bench.embedded.words import Stages, Words, draw
from tidelog_bench.experiment import Trial
from tidelog_bench.store import NONE, LatencyProfile, ModelledStore, Traffic, Write

_LOOK_S: Final = 0.02
"""Rarely enough to cost a job nothing; moments are taken when they are, not when they are seen."""
SOON_S: Final = 0.002


@dataclass(frozen=True)
class RunSpec:
    """What a run is; times in seconds."""

    keys: int
    draws: int
    """Length of the pre-drawn stream; a run that needs more goes round."""
    key_bytes: int = 16
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

    def config(self, work_dir: Path) -> JobConfig:
        default = MaterializeConfig()
        chosen: dict[str, Any] = {
            "parallelism": self.parallelism,
            "key_groups": self.key_groups,
            "retain": self.retain,
            "changelog": self.changelog,
            "work_dir": work_dir,
            "local_recovery": Path(self.copies) if self.copies else None,
            # What is measured is a checkpoint, also of a job whose input has ended.
            "checkpoint": CheckpointConfig(interval=self.checkpoint_s, idle_interval=0.0),
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
    """The run that the settings of a trial describe, with its link where they have a latency;
    `more` are fields that are not among the settings, or not as in the run.
    """
    link = trial.read(LatencyProfile) if "latency_ms" in trial.settings else None
    return trial.read(RunSpec, link=link, **more)


@dataclass(frozen=True, slots=True)
class Moment:
    """The beginning or the end of the measured time, and what the run had done by then."""

    mark: Mark
    totals: Traffic
    """What the store had been asked for."""
    status: JobStatus
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
        self.begun = Moment(mark, self.store.totals(), status_of(self.runner), rss_mb())

    def end(self, mark: Mark) -> None:
        self.ended = Moment(mark, self.store.totals(), status_of(self.runner), rss_mb())

    @property
    def incarnation(self) -> Incarnation:
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
        first, end = (moment.status.checkpoints.completed for moment in self.measured)
        metrics = self.incarnation.driver.metrics
        # The metrics have the newest ones only.
        gone = metrics.completed - len(metrics.durations_s)
        return list(metrics.durations_s)[max(0, first - gone) : end - gone]

    def figures(self) -> dict[str, float]:
        begun, ended = self.measured
        traffic, durations, status = self.traffic, self.durations_s, ended.status
        waited_s = status.uploads.backpressured_s - begun.status.uploads.backpressured_s
        found = {
            **rates(begun.mark, ended.mark),
            "checkpoints": len(durations),
            "checkpoints_failed": status.checkpoints.failed,
            "table_mb": round(status.state.table_bytes / 1e6, 1),
            "rss_mb": round(ended.rss_mb),
            "backpressured_s": round(waited_s, 3),
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
Watch = Callable[[Run], Coroutine[Any, Any, None]]


@contextlib.asynccontextmanager
async def meanwhile(*running: Coroutine[Any, Any, Any]) -> AsyncIterator[None]:
    """Run these, and stop them hard at the end; one that fails ends the body, and is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in running]
            yield
            for task in tasks:
                task.cancel()
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None


async def until(reached: Callable[[], bool], look_s: float = SOON_S) -> None:
    while not reached():
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
    words = draw(spec.keys, spec.key_bytes, spec.draws, spec.seed)
    stages = Stages(
        words if spec.filled else Words([], words.stream),
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
        async with meanwhile(run.runner.run(), *([watch(run)] if watch else ())):
            await until(lambda: run.ended is not None, _LOOK_S)
            if store is not None:
                # One may have begun before the last record; the one after it has them all.
                whole = run.completed + 2
                await until(lambda: run.completed >= whole)

    with (
        TemporaryDirectory(dir=room, ignore_cleanup_errors=True) as work,
        contextlib.closing(effects.offload),
    ):
        runner = JobRunner(build(stages), seen, spec.config(Path(work)), effects)
        run = Run(runner, seen, stages, memory.archive)
        asyncio.run(main())
        return run
