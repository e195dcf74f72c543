"""One incarnation of the simulated job in one process, from its start to its end or its death.

Invariant: a crash ends everything a process does at one moment; what it had sent may arrive.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from tidelog.errors import (
    CheckpointFailedError,
    FencedError,
    MaterializationFailedError,
    ObjectNotFoundError,
    RestoreError,
    StorageError,
    TidelogError,
)
from tidelog.ids import Generation
from tidelog.runtime.runner import JobResult, JobRunner
from tidelog.simulate.process import Process

_EXPLAINED: Final = (FencedError, CheckpointFailedError, MaterializationFailedError, StorageError)
"""How faults may end an incarnation."""
_OF_THE_OVERTAKEN: Final = (ObjectNotFoundError, RestoreError)
"""What only an incarnation that a newer one has overtaken may run into."""


@dataclass(slots=True, eq=False)
class Incarnation:
    """A runner in its process."""

    process: Process
    runner: JobRunner
    running: "asyncio.Task[JobResult]" = field(init=False)

    def start(self, on_started: Callable[[], None]) -> None:
        """Begin; within the loop."""
        self.running = asyncio.get_running_loop().create_task(self.runner.run(on_started))

    async def crash(self) -> None:
        """Kill the process."""
        self.process.dead = True
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)

    @property
    def error(self) -> BaseException | None:
        """What it ended with; None while it runs, after a good end and after a crash."""
        if not self.running.done() or self.running.cancelled():
            return None
        return self.running.exception()

    @property
    def result(self) -> JobResult | None:
        """How it ended when it ended well."""
        if not self.running.done() or self.running.cancelled() or self.running.exception():
            return None
        return self.running.result()

    def unexplained(self, newest: Generation) -> BaseException | None:
        """Its error, when its surroundings do not explain it."""
        error = self.error
        if error is None or self.process.dead:
            return None
        own = self.runner.generation
        if isinstance(error, _OF_THE_OVERTAKEN):
            overtaken = own is None or own < newest
            return None if overtaken else error
        sink_failed = isinstance(error.__cause__, ConnectionError)
        return None if sink_failed or isinstance(error, _EXPLAINED) else error


def told(error: BaseException) -> str:
    """An error for the trace: without paths of this machine."""
    if isinstance(error, TidelogError):
        return type(error).__name__
    return f"{type(error).__name__}: {error}"
