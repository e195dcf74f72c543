"""One incarnation of the simulated job in one process, from its start to its end or its death.

Invariants: a crash ends everything a process does at one moment; what it had sent may arrive. A
request for a savepoint or a stop that fails changes nothing; the job goes on.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, field
from random import Random
from typing import Final

from tests.simulator.jobs.plan import Version
from tests.simulator.machine.loop import OWNER, VirtualLoop
from tests.simulator.machine.network import Weather
from tests.simulator.machine.process import Process
from tests.support.workers import Actors
from tidelog import Checkpoint, JobResult, JobRunner
from tidelog.checkpoint.manifest import SavepointFormat
from tidelog.errors import (
    CheckpointFailedError,
    CorruptObjectError,
    FencedError,
    MaterializationFailedError,
    ObjectNotFoundError,
    RestoreError,
    StateSchemaError,
    StorageError,
    TidelogError,
    WorkerLostError,
)
from tidelog.ids import Generation
from tidelog.runtime.tasks.task import Task

_EXPLAINED: Final = (
    FencedError,
    CheckpointFailedError,
    MaterializationFailedError,
    StorageError,
    WorkerLostError,
)
"""How faults may end an incarnation."""
_REFUSALS: Final = (RestoreError, StateSchemaError)
"""How a start ends whose program does not go with its checkpoint."""
_OF_THE_OVERTAKEN: Final = (ObjectNotFoundError, RestoreError)
"""What only an incarnation that a newer one has overtaken may run into."""


@dataclass(slots=True, eq=False)
class Incarnation:
    process: Process
    runner: JobRunner
    version: Version
    actors: Actors | None = None
    """The workers of the incarnation; None: its process has all subtasks."""
    running: "asyncio.Task[JobResult]" = field(init=False)

    def start(self, on_started: Callable[[], None]) -> None:
        """Begin; within the loop."""
        context = copy_context()
        context.run(OWNER.set, self.process)
        loop = asyncio.get_running_loop()
        self.running = loop.create_task(self.runner.run(on_started), context=context)

    @property
    def tasks(self) -> Sequence[Task]:
        """All tasks, of whichever worker; it has started."""
        if self.actors is not None:
            return self.actors.tasks
        assert self.runner.incarnation is not None
        return self.runner.incarnation.tasks

    async def lose_a_worker(self, after_s: float) -> None:
        """Kill the second worker then, if it is still there."""
        await asyncio.sleep(after_s)
        if self.actors is not None and len(self.actors.running) > 1:
            await self.actors.kill_one(1)

    async def crash(self) -> None:
        """Kill the process, and with it its workers."""
        self.process.dead = True
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.resume(self.process)
        if self.actors is not None:
            await self.actors.kill(self.runner.effects.offload)
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)

    @property
    def outcome(self) -> JobResult | BaseException | None:
        """How it ended; None while it runs, and when it was killed."""
        if not self.running.done() or self.running.cancelled():
            return None
        return self.running.exception() or self.running.result()

    def is_defect(
        self, error: BaseException, newest: Generation, checkpoints: Sequence[Checkpoint]
    ) -> bool:
        """Whether no injected fault explains the error; the newest of `checkpoints` come first."""
        if self.process.dead or self._refused(error, checkpoints):
            return False
        own = self.runner.generation
        if isinstance(error, _OF_THE_OVERTAKEN):
            return own is not None and own >= newest
        if isinstance(error, CorruptObjectError) and self.process.damaged:
            return False
        injected = isinstance(error.__cause__, ConnectionError)
        return not injected and not isinstance(error, _EXPLAINED)

    def _refused(self, error: BaseException, checkpoints: Sequence[Checkpoint]) -> bool:
        """Whether the start was refused because its program does not go with the checkpoint."""
        # Refused before it restored, it had seen one of the newest.
        incarnation = self.runner.incarnation
        restored = incarnation.plan.checkpoint if incarnation is not None else None
        seen = checkpoints if restored is None else (restored,)
        return isinstance(error, _REFUSALS) and any(
            self.version.refusal(checkpoint) != "never" for checkpoint in seen
        )


def name_of(error: BaseException) -> str:
    """An error for the trace: without paths of this machine."""
    if isinstance(error, TidelogError):
        return type(error).__name__
    return f"{type(error).__name__}: {error}"


_WITHIN_S: Final = 3.0
_LOOKS_S: Final = 0.5
_STOP: Final = 0.4
"""Share of the requests that stop the job."""


async def ask_for_savepoints(
    runner: JobRunner, rng: Random, drains: float, weather: Weather
) -> None:
    """Ask now and then while faults last; a share of the requests that stop the job drain it."""
    while True:
        await asyncio.sleep(rng.random() * _WITHIN_S)
        if weather.calm:
            return
        kind: SavepointFormat = "native" if rng.random() < 0.5 else "canonical"
        with suppress(TidelogError):
            if rng.random() < _STOP:
                await runner.stop(format=kind, drain=rng.random() < drains)
            else:
                await runner.savepoint(format=kind)


async def drain_when(done: Callable[[], bool], runner: JobRunner) -> None:
    """Drain a job once it has done what it was to do, however often that takes asking."""
    while True:
        await asyncio.sleep(_LOOKS_S)
        with suppress(TidelogError):
            if done():
                await runner.stop(drain=True)
                return
