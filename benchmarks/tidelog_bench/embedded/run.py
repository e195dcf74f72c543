"""One measured run of a job: fill, warm up, measure, stop hard.

Invariant: a run is described by its spec alone; everything else is the library's default.
"""

import asyncio
import contextlib
import gc
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidelog.checkpoint.schedule import Schedule
from tidelog.effects import Effects
from tidelog.materialize.config import MaterializeConfig
from tidelog.runtime.config import DEFAULT_KEY_GROUPS, JobConfig
from tidelog.runtime.runner import JobRunner
from tidelog_bench.embedded.jobs import word_count
from tidelog_bench.embedded.meter import CLOCK
from tidelog_bench.embedded.running import BuildJob, Running, Watch, figures
from tidelog_bench.embedded.stages import Stages
from tidelog_bench.embedded.stores import Archive, behind, open_local
from tidelog_bench.embedded.workload import Words, Workload, draw
from tidelog_bench.measurement import Trial
from tidelog_bench.store.latency import LatencyProfile


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
    in_memory_store: bool = False
    copies: str | None = None
    """A directory for local recovery."""
    filled: bool = True
    """Every word is counted once before the warm-up."""
    parallelism: int = 1
    key_groups: int = DEFAULT_KEY_GROUPS
    retain: int = 3
    """Checkpoints kept."""
    seed: int = 1

    def words(self) -> Words:
        """Draw the input; what is drawn is no garbage collector's business."""
        words = draw(self.workload, self.seed)
        gc.collect()
        gc.freeze()
        return words if self.filled else Words([], words.stream)

    def config(self, work_dir: Path) -> JobConfig:
        """The job's configuration."""
        default = MaterializeConfig()
        return JobConfig(
            parallelism=self.parallelism,
            key_groups=self.key_groups,
            retain=self.retain,
            changelog=self.changelog,
            work_dir=work_dir,
            local_recovery=Path(self.copies) if self.copies else None,
            checkpoint=Schedule(interval=self.checkpoint_s),
            materialize=MaterializeConfig(
                interval=self.materialize_s or default.interval,
                replay_target=self.replay_s or default.replay_target,
            ),
        )


def spec_of(trial: Trial, **more: Any) -> RunSpec:
    """The run that the settings of a trial describe, with its workload and, where the settings have
    a latency, its link; `more` are fields that are not among the settings, or not as in the run.
    """
    given = {**trial.settings, **more}
    link = trial.read(LatencyProfile) if "latency_ms" in given else None
    return trial.read(RunSpec, **{"workload": given, "link": link, **more})


@contextlib.contextmanager
def scratch(parent: Path | None = None) -> Iterator[Path]:
    """A directory that is gone afterwards."""
    path = Path(tempfile.mkdtemp(prefix="tidelog-bench-", dir=parent))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def measure(
    spec: RunSpec,
    build: BuildJob = lambda stages: word_count(stages.read),
    watch: Watch | None = None,
    store: Path | None = None,
    *,
    after: Watch | None = None,
    room: Path | None = None,
) -> dict[str, float]:
    """Run a spec in this process; returns its figures.

    `watch` runs beside the job until it is stopped; `after` runs then, on a store that still has
    all of its log and manifests. With a directory for the store, the job is stopped right after a
    checkpoint that covers all records, and the store stays; without, it is stopped at once and
    everything is removed. `room` is where temporary files go.
    """
    words = spec.words()
    with scratch(room) as directory:
        at = store or directory / "store"
        run = _measure(
            spec, words, directory / "work", at, build, watch, after, keep=store is not None
        )
        return asyncio.run(run)


async def _measure(
    spec: RunSpec,
    words: Words,
    work_dir: Path,
    store_dir: Path,
    build: BuildJob,
    watch: Watch | None,
    after: Watch | None,
    *,
    keep: bool,
) -> dict[str, float]:
    effects = Effects()
    over = asyncio.Event()
    running: Running

    def on_start() -> None:
        running.begin()

    def on_end() -> None:
        running.end()
        over.set()

    stages = Stages(
        words,
        warm_s=spec.warm_s,
        seconds=spec.seconds,
        records=spec.records,
        rate=spec.rate,
        on_start=on_start,
        on_end=on_end,
    )
    local = open_local(None if spec.in_memory_store else store_dir, effects)
    archive = Archive(local) if after is not None else None
    store = behind(archive or local, spec.link, effects)
    runner = JobRunner(build(stages), store, spec.config(work_dir), effects)
    running = Running(runner, store, stages, archive)
    running_job = asyncio.ensure_future(runner.run())
    watching = asyncio.ensure_future(watch(running)) if watch else None
    ended = asyncio.ensure_future(_ended(over, running, keep))
    try:
        await asyncio.wait([running_job, ended], return_when=asyncio.FIRST_COMPLETED)
        if running_job.done():
            running_job.result()
        found = figures(running)
        await _stopped(ended, watching, running_job)
        if after is not None:
            await after(running)
        return found
    finally:
        await _stopped(ended, watching, running_job)
        effects.offload.close()


async def _stopped(*tasks: "asyncio.Future[Any] | None") -> None:
    for task in tasks:
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def _ended(over: asyncio.Event, running: Running, keep: bool) -> None:
    """The records are through, and if the store is kept, so is a checkpoint begun after them."""
    await over.wait()
    metrics = running.runner.incarnation.driver.metrics  # type: ignore[union-attr]
    target = metrics.completed + 2
    while keep and metrics.completed < target:
        await CLOCK.sleep(0.001)
