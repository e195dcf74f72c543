"""A job that fails between two checkpoints and is started again, in one process.

Invariant: the failure takes the way of every failure of a user's code: the incarnation stops all of
itself, and the next one fences it, restores the newest checkpoint and goes on.
"""

import math
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidelog.effects import Effects
from tidelog.errors import TidelogError
from tidelog.runtime.runner import JobRunner
from tidelog.storage.memory import MemoryStore
from tidelog_bench.embedded.meter import CLOCK, Mark
from tidelog_bench.embedded.run import BuildJob, RunSpec, started, until
from tidelog_bench.embedded.stores import modelled
from tidelog_bench.embedded.words import Stages, Words
from tidelog_bench.experiment import Points
from tidelog_bench.store.modelled import ModelledStore, Totals

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
class Restart:
    """What happened; moments on the clock of measurements."""

    stages: FailingStages
    moment: float
    """Where between two checkpoints the failure was put, from 0 to 1."""
    first: JobRunner
    second: JobRunner
    completions: list[float]
    """When checkpoints of the first incarnation were seen to be complete."""
    stopped: float
    """Everything of the first incarnation had ended."""
    up: float
    """All tasks of the second one ran."""
    downloaded_bytes: int
    """By the second one until then."""


async def restart(
    spec: RunSpec, build: BuildJob, room: Path, *, warm_s: float, limit_s: float, rest_s: float
) -> Restart:
    """Run, fail, start again, and wait until the job has caught up with its source.

    `warm_s` passes after the fill before a failure is thought of; a job that has not caught up
    within `limit_s` after the failure is stopped; one that has goes on for `rest_s`.
    """
    assert spec.rate is not None
    effects, stages = Effects(), FailingStages(spec.words(), rate=spec.rate)
    store, model = modelled(MemoryStore(), spec.link, effects)
    config, moment = spec.config(room / "work"), random.Random(spec.seed).random()
    first = JobRunner(build(stages), store, config, effects)
    second = JobRunner(build(stages), store, config, effects)
    try:
        completions = await _fail(first, stages, moment, warm_s)
        ended, before = CLOCK.monotonic(), model.totals()
        up, asked = await _start_again(second, stages, model, limit_s, rest_s)
    finally:
        await store.close()
        effects.offload.close()
    downloaded = asked.downloaded_bytes - before.downloaded_bytes
    return Restart(stages, moment, first, second, completions, ended, up, downloaded)


async def _fail(
    runner: JobRunner, stages: FailingStages, moment: float, warm_s: float
) -> list[float]:
    """Run until the job has failed at its moment: a share of the time between two checkpoints."""
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
    runner: JobRunner, stages: FailingStages, model: ModelledStore, limit_s: float, rest_s: float
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
        await CLOCK.sleep(rest_s)
    return up[0]
