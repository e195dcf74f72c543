"""Whether memory is bounded by configuration: the store hangs, the job goes on until its limit.

Invariant: nothing is asserted; what the uploader holds, and the process, are read all the time.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tidelog.bench.embedded.cells import number, settings_of, workload_of
from tidelog.bench.embedded.meter import CLOCK, rss_mb
from tidelog.bench.embedded.run import RunSpec, measure
from tidelog.bench.embedded.running import Running
from tidelog.bench.embedded.workload import WORKLOADS, Workload
from tidelog.bench.experiment import Bars, Experiment, Figure, OverTime, Ratio
from tidelog.bench.measurement import Cell, Measurement, Points, Reading, Setting, Size, Trial
from tidelog.bench.thinning import thinned

VARIANTS: Final = ("stalled", "calm")
LOOK_S: Final = 0.05


def cells(size: Size) -> list[Cell]:
    """One stall, or in a full session several limits."""
    workload, stall, limits = {
        Size.QUICK: (Workload(50_000, 200, draws=500_000), 4.0, [8.0]),
        Size.STANDARD: (Workload(200_000, 200, draws=1_000_000), 15.0, [32.0]),
        Size.FULL: (WORKLOADS["200x0.95M"], 30.0, [8.0, 32.0, 128.0]),
    }[size]
    # Before the stall, and after it, for what was held to go out.
    calm, recovery = (1.5, 3.0) if size is Size.QUICK else (5.0, 10.0)
    return [
        Cell(
            settings_of(workload)
            | {"limit_mb": limit, "warm_s": 1.0}
            | {"calm_s": calm, "stall_s": stall, "recovery_s": recovery},
            VARIANTS,
            4.0 + calm + stall + recovery + workload.keys / 1e5,
        )
        for limit in limits
    ]


def spec_of(settings: Mapping[str, Setting], seed: int) -> RunSpec:
    """The run of a cell."""
    return RunSpec(
        workload_of(settings),
        warm_s=number(settings, "warm_s"),
        seconds=sum(number(settings, name) for name in ("calm_s", "stall_s", "recovery_s")),
        limit_bytes=int(number(settings, "limit_mb") * 1e6),
        seed=seed,
    )


@dataclass
class _Watched:
    """What was seen, by seconds since the measured time began."""

    calm_s: float
    stall_s: float
    """0: the store never hangs."""
    held: Points = field(default_factory=list)
    rss: Points = field(default_factory=list)
    records: Points = field(default_factory=list)

    async def watch(self, running: Running) -> None:
        """Look, and stall the store in between."""
        hung = released = False
        while True:
            await CLOCK.sleep(LOOK_S)
            start = running.stages.start
            if start is None or running.runner.uploader is None:
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
        uploader, deployment = running.runner.uploader, running.runner.deployment
        assert uploader is not None and deployment is not None
        self.held.append((at, uploader.metrics.queued_bytes / 1e6))
        self.rss.append((at, rss_mb()))
        seen = sum(task.parts.metrics.records_in for task in deployment.tasks)
        self.records.append((at, float(seen)))


def run(trial: Trial) -> Reading:
    """With the stall, or without."""
    spec = spec_of(trial.settings, trial.seed)
    calm, stall = number(trial.settings, "calm_s"), number(trial.settings, "stall_s")
    watched = _Watched(calm, stall if trial.variant == "stalled" else 0.0)
    found: dict[str, Any] = measure(spec, watch=watched.watch, room=trial.directory)
    held = max(value for _, value in watched.held)
    before = [value for at, value in watched.rss if at < calm]
    during = [value for at, value in watched.rss if calm <= at < calm + stall]
    figures = {
        "held_mb_max": held,
        "held_over_limit": held / number(trial.settings, "limit_mb"),
        "rss_mb_max": max(value for _, value in watched.rss),
        "rss_mb_growth": max(during) - max(before),
        "backpressured_s": found["backpressured_s"],
        "records_per_s": found["records_per_s"],
    }
    curves = {"held_mb": watched.held, "rss_mb": watched.rss, "records": watched.records}
    return Reading(figures, {name: _rounded(points) for name, points in curves.items()}, found)


def _rounded(points: Points) -> Points:
    return thinned([(round(at, 2), round(value, 3)) for at, value in points])


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
            Figure("rss_mb_max", "largest resident memory", "MB"),
            Figure("rss_mb_growth", "growth of resident memory in the stall", "MB"),
            Figure("backpressured_s", "writers waited", "s", "neither"),
            Figure("held_mb_max", "log held at most", "MB"),
            Figure("records_per_s", "throughput", "records/s", "higher"),
        ),
        ratios=(Ratio("stalled", "calm"),),
        plots=(
            OverTime("held_mb", "Log held", "MB"),
            OverTime("rss_mb", "Resident memory", "MB"),
            OverTime("records", "Records handled", "records"),
            Bars("rss_mb_max", "Largest resident memory, MB"),
        ),
    ),
)
