"""A job that fails between two checkpoints and is started again, in one process.

Invariant: the failure takes the way of every failure of a user's code: the incarnation stops all of
itself, and the next one fences it, restores the newest checkpoint and goes on.
"""

import asyncio
import math
import random
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Final

from tidelog.effects import Effects
from tidelog.errors import TidelogError
from tidelog.runtime.runner import JobRunner
from tidelog.storage.memory import MemoryStore
from tidelog_bench.embedded.jobs import PAYLOAD_BYTES, Load
from tidelog_bench.embedded.meter import CLOCK, Mark
from tidelog_bench.embedded.run import RunSpec, started, until
from tidelog_bench.embedded.stores import modelled
from tidelog_bench.embedded.words import Stages, Words
from tidelog_bench.experiment import Points, Reading, Trial, downsampled
from tidelog_bench.store.modelled import ModelledStore, Totals

LEAD_S: Final = 2.0
"""The curve of a failure begins so long before it ..."""
_REST_S: Final = 0.5
"""... and ends so long after the job has caught up."""
_SAMPLE_S: Final = 0.01


class InjectedFailure(Exception):
    """What the job fails with."""


class FailingStages(Stages):
    """Goes on at a fixed rate while the job that reads fails and starts again; `arm` lets the next
    read fail.

    What is due at a moment depends on the clock alone, so the time a job is down is work that waits
    for it; a record is handed out again only because a restart went back to it.
    """

    def __init__(self, words: Words, *, rate: float) -> None:
        super().__init__(words, warm_s=math.inf, seconds=math.inf, rate=rate)
        self.failed: Mark | None = None
        """The failure, and how far the job had read."""
        self.resumed: Mark | None = None
        """The first read of the restarted job, and where it goes on."""
        self.caught_up: Mark | None = None
        """When no record was due any more."""
        self._armed = False
        self._lag: Points = []

    def arm(self) -> None:
        """Let the next read raise InjectedFailure."""
        self._armed = True

    def read(self, position: int) -> list[str] | None:
        """The buffer at a position, or what is due of it."""
        if self._armed:
            self._armed = False
            self.failed = Mark.now(position)
            raise InjectedFailure
        if self.failed is not None and self.resumed is None:
            self.resumed = Mark.now(position)
        found = super().read(position)
        if self.filled is not None:
            self._observe(position, due=bool(found))
        return found

    def lag_since(self, moment: float) -> Points:
        """How far the job lagged: (seconds after a moment of the clock, seconds of input)."""
        return [(at - moment, lag) for at, lag in self._lag if at >= moment]

    def _observe(self, position: int, *, due: bool) -> None:
        if self.resumed is not None and self.caught_up is None and not due:
            self.caught_up = Mark.now(position)
        now = CLOCK.monotonic()
        if not self._lag or now - self._lag[-1][0] >= _SAMPLE_S:
            self._lag.append((now, self.lag_s(Mark.now(position))))


@dataclass(frozen=True, slots=True)
class Failure:
    """What the settings of a trial say of a failure; times in seconds."""

    warm_s: float
    """Passes after the fill before a failure is thought of."""
    limit_s: float
    """A job that has not caught up so long after the failure is stopped."""
    materialize_s: float
    key_bytes: int = 16 + PAYLOAD_BYTES


def measure_failure(trial: Trial) -> Reading:
    """Run a variant until it fails, and its restart until it has caught up."""
    settings = trial.read(Failure)
    # Of the words to be drawn: as many as come until the failure and a little after it.
    load = trial.read(Load, seconds=3 * settings.materialize_s)
    return asyncio.run(_measured(settings, load, load.spec(trial), trial.directory))


async def _measured(settings: Failure, load: Load, spec: RunSpec, room: Path) -> Reading:
    effects, stages = Effects(), FailingStages(spec.words(), rate=load.rate)
    store, model = modelled(MemoryStore(), spec.link, effects)
    # Where between two checkpoints the failure is put.
    config, moment = spec.config(room / "work"), random.Random(spec.seed).random()
    first = JobRunner(load.build(stages), store, config, effects)
    second = JobRunner(load.build(stages), store, config, effects)
    try:
        completions = await _fail(first, stages, moment, settings.warm_s)
        stopped, before = CLOCK.monotonic(), model.totals()
        up, asked = await _start_again(second, stages, model, settings.limit_s)
    finally:
        await store.close()
        effects.offload.close()
    failed, resumed = stages.failed, stages.resumed
    assert failed is not None and resumed is not None
    assert first.incarnation is not None and second.incarnation is not None
    progress, again = second.incarnation.states.progress, failed.records - resumed.records
    filled = stages.filled.wall if stages.filled is not None else 0.0
    gaps = [end - start for start, end in pairwise(completions) if end >= filled]
    curve = stages.lag_since(failed.wall - LEAD_S)
    figures = {
        "reprocessed_records": again,
        "reprocessed_mb": again * settings.key_bytes / 1e6,
        "reprocessed_s": again / load.rate,
        "down_s": up - failed.wall,
        "stopped_s": stopped - failed.wall,
        "restore_s": progress.seconds or 0.0,
        "replayed_changes": progress.changes,
        "downloaded_mb": (asked.downloaded_bytes - before.downloaded_bytes) / 1e6,
        "behind_peak_s": max(lag for _, lag in curve),
        "behind_before_s": stages.lag_s(failed),
        "checkpoint_period_s": fmean(gaps),
        "checkpoint_mean_ms": fmean(first.incarnation.driver.metrics.durations_s) * 1e3,
    }
    if stages.caught_up is not None:
        figures["caught_up_s"] = stages.caught_up.wall - failed.wall
    notes = {"moment": round(moment, 3), "failed_at_s": LEAD_S}
    return Reading(figures, {"behind_s": downsampled(curve)}, notes)


async def _fail(
    runner: JobRunner, stages: FailingStages, moment: float, warm_s: float
) -> list[float]:
    """Run until the job has failed at its moment: a share of the time between two checkpoints.

    The moments at which checkpoints were seen to be complete.
    """
    seen: list[float] = []
    counted = 0

    def warm() -> bool:
        nonlocal counted
        made = runner.incarnation
        completed = made.driver.metrics.completed if made is not None else 0
        if completed == counted:
            return False
        counted = completed
        seen.append(CLOCK.monotonic())
        filled = stages.filled
        return filled is not None and seen[-1] - filled.wall >= warm_s and len(seen) > 1

    async with started(runner) as job:
        await until(warm, job)
        await CLOCK.sleep(moment * (seen[-1] - seen[-2]))
        stages.arm()
        try:
            await job
        except TidelogError as error:
            if not isinstance(error.__cause__, InjectedFailure):
                raise
    return seen


async def _start_again(
    runner: JobRunner, stages: FailingStages, model: ModelledStore, limit_s: float
) -> tuple[float, Totals]:
    """When all tasks ran, and what the store had been asked for by then."""
    assert stages.failed is not None
    up: list[tuple[float, Totals]] = []
    deadline = stages.failed.wall + limit_s

    def caught_up() -> bool:
        late = stages.caught_up is None and CLOCK.monotonic() < deadline
        return stages.resumed is not None and not late

    async with started(runner, lambda: up.append((CLOCK.monotonic(), model.totals()))) as job:
        await until(caught_up, job)
        await CLOCK.sleep(_REST_S)
    return up[0]
