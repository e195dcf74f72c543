"""Whether memory is bounded by configuration: the store hangs, the job goes on until its limit.

Invariant: nothing is asserted; what the uploader holds, and the process, are read all the time.
`malloc` is set as `tidelog run` sets it.
"""

from dataclasses import asdict, dataclass, field
from typing import Final

from tidelog.cli.run.own_process import return_freed_memory
from tidelog.runtime.status.observe import status_of
from tidelog_bench.embedded.jobs import large_rows, word_count
from tidelog_bench.embedded.meter import CLOCK, rss_mb
from tidelog_bench.embedded.run import measure, spec_of
from tidelog_bench.embedded.running import BuildJob, Running
from tidelog_bench.embedded.workload import WORKLOADS, Workload
from tidelog_bench.experiment import Bars, Experiment, Figure, OverTime, Ratio
from tidelog_bench.measurement import Cell, Measurement, Points, Reading, Size, Trial, downsampled

VARIANTS: Final = ("stalled", "calm")
LOOK_S: Final = 0.05
_PARTS: Final = 8
"""The log on its way may take one of so many parts of a job's memory."""


def cells(size: Size) -> list[Cell]:
    """One stall with small values, unless quick one with large ones; in full several limits."""
    workload, stall, limits = {
        Size.QUICK: (Workload(30_000, 200, draws=200_000), 2.5, [5.0]),
        Size.STANDARD: (Workload(100_000, 200, draws=1_000_000), 10.0, [16.0]),
        Size.FULL: (WORKLOADS["200x0.95M"], 30.0, [8.0, 32.0, 128.0]),
    }[size]
    # Small values under long words, and large values of which a tenth fits.
    memory = 128.0 if size is Size.FULL else 48.0
    rows = int(10 * memory * 1e6) >> 14
    large = Workload(rows, 16, draws=500_000)
    loads = [(workload, 0, _PARTS * limit) for limit in limits]
    if size is not Size.QUICK:
        loads.append((large, 16 << 10, memory))
    # Before the stall, and after it, for what was held to go out.
    calm, recovery = {Size.QUICK: (1.0, 1.5), Size.STANDARD: (3.0, 6.0), Size.FULL: (5.0, 10.0)}[
        size
    ]
    return [
        Cell(
            asdict(load)
            | {"limit_mb": memory / _PARTS, "memory_mb": memory, "warm_s": 1.0}
            | {"row_bytes": row_bytes}
            | {"calm_s": calm, "stall_s": stall, "recovery_s": recovery},
            VARIANTS,
            4.0 + calm + stall + recovery + load.keys * (1 / 1e5 + row_bytes / 2e7),
        )
        for load, row_bytes, memory in loads
    ]


@dataclass(frozen=True, slots=True)
class _Settings:
    limit_mb: float
    memory_mb: float
    row_bytes: int
    calm_s: float
    stall_s: float
    recovery_s: float


@dataclass
class _Watched:
    """What was seen, by seconds since the measured time began."""

    calm_s: float
    stall_s: float
    """0: the store never hangs."""
    held: Points = field(default_factory=list)
    used: Points = field(default_factory=list)
    """The job's memory over time, all parts."""
    rss: Points = field(default_factory=list)
    rss_before: float | None = None
    """Before the first record, in MB."""
    rss_after: float = 0.0
    records: Points = field(default_factory=list)

    async def watch(self, running: Running) -> None:
        """Look, and stall the store in between."""
        hung = released = False
        while True:
            await CLOCK.sleep(LOOK_S)
            self.rss_after = rss_mb()
            if self.rss_before is None:
                self.rss_before = self.rss_after
            start = running.stages.start
            if start is None or running.runner.incarnation is None:
                continue
            at = CLOCK.monotonic() - start.wall
            if self.stall_s and not hung and at >= self.calm_s:
                running.store.stall()
                hung = True
            if hung and not released and at >= self.calm_s + self.stall_s:
                running.store.release()
                released = True
            self._look(at, running)

    def _look(self, at: float, running: Running) -> None:
        incarnation = running.runner.incarnation
        assert incarnation is not None and incarnation.uploader is not None
        self.held.append((at, incarnation.uploader.metrics.queued_bytes / 1e6))
        self.used.append((at, status_of(running.runner).memory.used_bytes / 1e6))
        self.rss.append((at, self.rss_after))
        seen = sum(task.parts.metrics.records_in for task in incarnation.deployment.tasks)
        self.records.append((at, float(seen)))


def run(trial: Trial) -> Reading:
    """With the stall, or without."""
    settings = trial.read(_Settings)
    calm, stall, memory_mb = settings.calm_s, settings.stall_s, settings.memory_mb
    spec = spec_of(
        trial,
        seconds=calm + stall + settings.recovery_s,
        limit_bytes=int(settings.limit_mb * 1e6),
        memory_bytes=int(memory_mb * 1e6),
    )
    watched = _Watched(calm, stall if trial.variant == "stalled" else 0.0)
    return_freed_memory()
    found = measure(spec, _job(settings.row_bytes), watched.watch, room=trial.directory)
    held = max(value for _, value in watched.held)
    used = max(value for _, value in watched.used)
    before = [value for at, value in watched.rss if at < calm]
    during = [value for at, value in watched.rss if calm <= at < calm + stall]
    largest, first = max(value for _, value in watched.rss), watched.rss_before
    assert first is not None
    figures = {
        "held_mb_max": held,
        "held_over_limit": held / settings.limit_mb,
        "used_mb_max": used,
        "used_over_memory": used / memory_mb,
        "rss_mb_before": first,
        "rss_mb_max": largest,
        "rss_mb_after": watched.rss_after,
        "rss_over_memory": (largest - first) / memory_mb,
        "rss_mb_growth": max(during) - max(before),
        "backpressured_s": found["backpressured_s"],
        "records_per_s": found["records_per_s"],
    }
    curves = {
        "held_mb": watched.held,
        "used_mb": watched.used,
        "rss_mb": watched.rss,
        "records": watched.records,
    }
    return Reading(figures, {name: _rounded(points) for name, points in curves.items()}, found)


def _job(row_bytes: int) -> BuildJob:
    """Counts words, or keeps for each of them the last of its large rows."""
    if not row_bytes:
        return lambda stages: word_count(stages.read)
    return lambda stages: large_rows(stages.read, row_bytes)


def _rounded(points: Points) -> Points:
    return downsampled([(round(at, 2), round(value, 3)) for at, value in points])


MEASUREMENT: Final = Measurement("memory-limit", cells, run)
EXPERIMENTS: Final = (
    Experiment(
        name="memory-limit",
        title="Memory while the store hangs",
        question="Is memory bounded by configuration, however long the store does not answer?",
        group="more",
        measurement=MEASUREMENT,
        figures=(
            Figure("held_over_limit", "log held over its limit", ""),
            Figure("used_over_memory", "memory used of what the job may take", ""),
            Figure("rss_over_memory", "growth of resident memory of what the job may take", ""),
            Figure("rss_mb_before", "resident memory before the first record", "MB"),
            Figure("rss_mb_max", "largest resident memory", "MB"),
            Figure("rss_mb_after", "resident memory at the end", "MB"),
            Figure("rss_mb_growth", "growth of resident memory in the stall", "MB"),
            Figure("backpressured_s", "writers waited", "s", "neither"),
            Figure("held_mb_max", "log held at most", "MB"),
            Figure("used_mb_max", "memory used at most", "MB"),
            Figure("records_per_s", "throughput", "records/s", "higher"),
        ),
        ratios=(Ratio("stalled", "calm"),),
        plots=(
            OverTime("held_mb", "Log held", "MB"),
            OverTime("used_mb", "Memory used of the job's budget", "MB"),
            OverTime("rss_mb", "Resident memory", "MB"),
            OverTime("records", "Records handled", "records"),
            Bars("rss_mb_max", "Largest resident memory, MB"),
        ),
    ),
)
