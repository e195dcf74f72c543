"""A job under measurement, and the figures that are read from it.

Invariant: only what happened between the first and the last moment of the measured time counts.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass

from tidelog.runtime.graph import Job
from tidelog.runtime.runner import JobRunner
from tidelog.runtime.status.distribution import percentile
from tidelog_bench.embedded.meter import rates, rss_mb
from tidelog_bench.embedded.stages import Stages
from tidelog_bench.embedded.stores import Archive, ObservedStore
from tidelog_bench.measurement import Points
from tidelog_bench.store.modelled import Totals, Traffic


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
        incarnation = self.runner.incarnation
        assert incarnation is not None
        self.started_checkpoints = len(incarnation.driver.metrics.durations_s)
        self.started_materializations = materializations(self.runner)
        if incarnation.uploader is not None:
            self.started_backpressured_s = incarnation.uploader.metrics.backpressured_s
        self.before = self.store.model.totals()

    def end(self) -> None:
        """Take note that the measured time is over."""
        assert self.before is not None
        self.traffic = self.store.model.totals().since(self.before)


Watch = Callable[[Running], Awaitable[None]]
BuildJob = Callable[[Stages], Job]


def materializations(runner: JobRunner) -> int:
    """Completed so far; checkpoints of the table when the changelog is off."""
    assert runner.incarnation is not None
    subtasks = runner.incarnation.deployment.states.subtasks.values()
    return sum(subtask.snapshots.metrics.completed for subtask in subtasks)


def figures(running: Running) -> dict[str, float]:
    """Throughput, cost, checkpoints, uploads, memory."""
    incarnation, stages = running.runner.incarnation, running.stages
    assert stages.start and stages.end
    assert incarnation is not None
    metrics = incarnation.driver.metrics
    tables = [task.parts.backend.table.size_bytes() for task in incarnation.deployment.tasks]
    found = rates(stages.start, stages.end)
    durations = metrics.durations_s[running.started_checkpoints :]
    found["checkpoints"] = len(durations)
    if durations:
        found["checkpoint_p50_ms"] = round(percentile(durations, 0.5) * 1e3, 1)
    found["checkpoints_failed"] = metrics.failed
    found["snapshots"] = materializations(running.runner) - running.started_materializations
    found["table_mb"] = round(sum(tables) / 1e6, 1)
    found["rss_mb"] = round(rss_mb())
    if running.traffic is not None and running.traffic.seconds:
        moved = running.traffic.uploaded_bytes / running.traffic.seconds
        found["uploaded_mb_per_s"] = round(moved / 1e6, 3)
    if incarnation.uploader is not None:
        upload = incarnation.uploader.metrics
        found["backpressured_s"] = round(
            upload.backpressured_s - running.started_backpressured_s, 3
        )
    return found


def stored_over_time(running: Running, prefix: str = "") -> Points:
    """Bytes of the objects below a prefix: (seconds since the measured time began, bytes).

    An object counts from the end of its write until the job deletes it, whatever the archive keeps.
    """
    assert running.archive is not None
    start, end = running.stages.start, running.stages.end
    assert start is not None and end is not None
    writes = [write for write in running.store.writes if write.name.startswith(prefix)]
    sizes = {write.name: write.size for write in writes}
    changes = [(write.ended, write.size) for write in writes]
    changes += [
        (deletion.at, -sizes.pop(deletion.name))
        for deletion in running.archive.deletions
        if deletion.name in sizes
    ]
    return list(_within(sorted(changes), start.wall, end.wall))


def _within(
    changes: Iterable[tuple[float, int]], start: float, end: float
) -> Iterator[tuple[float, float]]:
    total, begun = 0, False
    for at, change in changes:
        if at > end:
            break
        if at > start and not begun:
            begun = True
            yield 0.0, total
        total += change
        if begun:
            yield at - start, total
    if not begun:
        yield 0.0, total
