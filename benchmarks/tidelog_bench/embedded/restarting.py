"""A job that fails between two checkpoints and is started again, in one process.

Invariant: the failure takes the way of every failure of a user's code: the incarnation stops all of
itself, and the next one fences it, restores the newest checkpoint and goes on.
"""

import asyncio
import contextlib
import math
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tidelog.effects import Effects
from tidelog.errors import TidelogError
from tidelog.runtime.runner import JobRunner
from tidelog_bench.embedded.meter import CLOCK, Mark
from tidelog_bench.embedded.run import RunSpec
from tidelog_bench.embedded.running import BuildJob
from tidelog_bench.embedded.stages import Stages
from tidelog_bench.embedded.stores import ObservedStore, open_store
from tidelog_bench.embedded.workload import Words
from tidelog_bench.measurement import Points
from tidelog_bench.store.modelled import Totals

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
        self._lag: list[tuple[float, float]] = []

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

    def lag_s(self, since: float) -> Points:
        """How far the job was behind its source: (seconds after a moment of the clock, seconds)."""
        return [(at - since, lag) for at, lag in self._lag if at >= since]

    def _observe(self, position: int, *, due: bool) -> None:
        if self.resumed is not None and self.caught_up is None and not due:
            self.caught_up = Mark.now(position)
        now = CLOCK.monotonic()
        if not self._lag or now - self._lag[-1][0] >= _SAMPLE_S:
            self._lag.append((now, self.behind_s(Mark.now(position))))


@dataclass
class Restart:
    """What happened; moments on the clock of measurements."""

    stages: FailingStages
    moment: float
    """Where between two checkpoints the failure was put, from 0 to 1."""
    first: JobRunner
    second: JobRunner
    completions: list[float] = field(default_factory=list)
    """When checkpoints of the first incarnation were seen to be complete."""
    stopped: float = 0.0
    """Everything of the first incarnation had ended."""
    up: Mark | None = None
    """All tasks of the second one ran."""
    asked: tuple[Totals, Totals] | None = None
    """What the store had been asked for when the first one had ended, and when `up`."""


async def restart(
    spec: RunSpec, build: BuildJob, directory: Path, *, warm_s: float, limit_s: float, rest_s: float
) -> Restart:
    """Run, fail, start again, and wait until the job has caught up with its source.

    `warm_s` passes after the fill before a failure is thought of; a job that has not caught up
    within `limit_s` after the failure is left behind; one that has goes on for `rest_s`.
    """
    assert spec.rate is not None
    stages = FailingStages(spec.words(), rate=spec.rate)
    effects = Effects()
    store = open_store(None, spec.link, effects)
    config = spec.config(directory / "work")
    found = Restart(
        stages,
        random.Random(spec.seed).random(),
        JobRunner(build(stages), store, config, effects),
        JobRunner(build(stages), store, config, effects),
    )
    try:
        await _fail(found, warm_s)
        await _start_again(found, store, limit_s, rest_s)
    finally:
        await store.close()
        effects.offload.close()
    return found


async def _fail(found: Restart, warm_s: float) -> None:
    """Run the first incarnation until it has failed at its moment."""
    running = asyncio.ensure_future(found.first.run())
    waiting = asyncio.ensure_future(_moment(found, warm_s))
    try:
        await asyncio.wait([running, waiting], return_when=asyncio.FIRST_COMPLETED)
        if waiting.done():
            waiting.result()
            found.stages.arm()
        await running
    except TidelogError as error:
        if not isinstance(error.__cause__, InjectedFailure):
            raise
    finally:
        await _ended(waiting, running)
    found.stopped = CLOCK.monotonic()


async def _moment(found: Restart, warm_s: float) -> None:
    """Wait for the moment: a share of the time that lies between two checkpoints now."""
    stages, runner, seen = found.stages, found.first, found.completions
    counted = 0
    while True:
        await CLOCK.sleep(0.002)
        made = runner.incarnation
        completed = made.driver.metrics.completed if made is not None else 0
        if completed == counted:
            continue
        counted = completed
        seen.append(CLOCK.monotonic())
        warm = stages.filled is not None and seen[-1] - stages.filled.wall >= warm_s
        if warm and len(seen) > 1:
            break
    await CLOCK.sleep(found.moment * (seen[-1] - seen[-2]))


async def _start_again(found: Restart, store: ObservedStore, limit_s: float, rest_s: float) -> None:
    stages, before = found.stages, store.model.totals()
    assert stages.failed is not None

    def on_started() -> None:
        found.up = Mark.now(0)
        found.asked = before, store.model.totals()

    running = asyncio.ensure_future(found.second.run(on_started))
    try:
        deadline = stages.failed.wall + limit_s
        while stages.resumed is None or (stages.caught_up is None and CLOCK.monotonic() < deadline):
            if running.done():
                running.result()
            await CLOCK.sleep(0.002)
        await CLOCK.sleep(rest_s)
    finally:
        await _ended(running)


async def _ended(*tasks: "asyncio.Future[Any]") -> None:
    for task in tasks:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, TidelogError):
            await task
