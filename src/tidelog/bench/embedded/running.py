"""A job under measurement, and the figures that are read from it.

Invariant: only what happened between the first and the last moment of the measured time counts.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from tidelog.bench.embedded.archive import Archive
from tidelog.bench.embedded.jobs import word_count
from tidelog.bench.embedded.meter import latency, rates, rss_mb
from tidelog.bench.embedded.stages import Stages
from tidelog.bench.embedded.stores import ObservedStore
from tidelog.bench.store.traffic import Totals, Traffic
from tidelog.runtime.graph import Job
from tidelog.runtime.runner import JobRunner


@dataclass
class Running:
    """A job under measurement; hooks see it while it runs."""

    runner: JobRunner
    store: ObservedStore
    stages: Stages
    archive: Archive | None = None
    """What is kept for `after`."""
    started_checkpoints: int = 0
    started_materializations: int = 0
    started_backpressured_s: float = 0.0
    before: Totals | None = None
    """What the store had been asked for when the measured time began."""
    traffic: Traffic | None = None
    """What it was asked for within the measured time."""

    def begin(self) -> None:
        """The measured time begins."""
        assert self.runner.driver is not None
        self.started_checkpoints = len(self.runner.driver.metrics.durations_s)
        self.started_materializations = materializations(self.runner)[0]
        if self.runner.uploader is not None:
            self.started_backpressured_s = self.runner.uploader.metrics.backpressured_s
        self.before = self.store.model.totals()

    def end(self) -> None:
        """It is over."""
        assert self.before is not None
        self.traffic = self.store.model.totals().since(self.before)


Watch = Callable[[Running], Awaitable[None]]
BuildJob = Callable[[Stages], Job]


@dataclass(frozen=True)
class Hooks:
    """What an experiment does besides the run itself."""

    build: BuildJob = lambda stages: word_count(stages.read)
    watch: Watch | None = None
    """Runs beside the job, until it is stopped."""
    after: Watch | None = None
    """Runs when the job has been stopped; the store then still has all of its log and manifests."""


def materializations(runner: JobRunner) -> tuple[int, int]:
    """Completed so far, and their bytes; checkpoints of the table when the changelog is off."""
    assert runner.deployment is not None
    metrics = [snapshots.metrics for snapshots in runner.deployment.states.snapshots]
    return sum(m.completed for m in metrics), sum(m.bytes_uploaded for m in metrics)


def figures(running: Running) -> dict[str, Any]:
    """Throughput, cost, checkpoints, uploads, memory."""
    runner, stages = running.runner, running.stages
    assert stages.start and stages.end and stages.filled
    assert runner.driver is not None and runner.deployment is not None
    metrics = runner.driver.metrics
    count, uploaded = materializations(runner)
    tables = [task.parts.backend.table.size_bytes() for task in runner.deployment.tasks]
    found: dict[str, Any] = rates(stages.start, stages.end)
    found["fill_s"] = round(stages.filled.wall - (stages.began or stages.filled).wall, 1)
    found["checkpoints"] = latency(metrics.durations_s[running.started_checkpoints :])
    found["checkpoints_failed"] = metrics.failed
    found["snapshots"] = count - running.started_materializations
    found["table_mb_uploaded"] = round(uploaded / 1e6, 1)
    found["table_mb"] = round(sum(tables) / 1e6, 1)
    found["rss_mb"] = round(rss_mb())
    if running.traffic is not None and running.traffic.seconds:
        moved = running.traffic.uploaded_bytes / running.traffic.seconds
        found["uploaded_mb_per_s"] = round(moved / 1e6, 3)
    if runner.uploader is not None:
        upload = runner.uploader.metrics
        found["log_mb"] = round(upload.bytes / 1e6, 1)
        found["backpressured_s"] = round(
            upload.backpressured_s - running.started_backpressured_s, 3
        )
    return found
