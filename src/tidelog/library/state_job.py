"""The job that keeps a program's states, in tidelog's event loop.

Invariants: whatever ends the job ends the database too, and the next operation of the program
raises the reason; what is durable is what the last checkpoint holds.
"""

import asyncio
import concurrent.futures
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from tidelog.catalog.application import refuse_application
from tidelog.checkpoint.manifest import Checkpoint, Savepoint
from tidelog.concurrency import discard
from tidelog.errors import (
    CheckpointFailedError,
    ConfigError,
    TidelogError,
    UserFunctionError,
    require,
)
from tidelog.events import Event
from tidelog.library.event_loop import EventLoop, forked_error
from tidelog.library.program import Program
from tidelog.library.states import State, check_states
from tidelog.library.steps import Steps
from tidelog.runtime.checkpoints.driver import CheckpointDriver
from tidelog.runtime.config import JobConfig
from tidelog.runtime.control.server import control_until
from tidelog.runtime.graph import Job
from tidelog.runtime.runner import JobRunner
from tidelog.runtime.sink import Sink
from tidelog.runtime.subtasks.resources import Resources
from tidelog.storage.port import ObjectStore

logger = logging.getLogger(__name__)

_OPERATOR: Final = "state"


class StateJob:
    """Runs the job; its coroutines run in the event loop, all else in the program's threads."""

    def __init__(
        self,
        store: ObjectStore,
        state: Mapping[str, State],
        name: str,
        config: JobConfig,
        event_loop: EventLoop,
        steps: type[Steps],
        *,
        sinks: Mapping[str, Sink] | None = None,
        partition: str | None = None,
        resources: Resources | None = None,
    ) -> None:
        """`partition` is its name in errors when it is one of several that share `resources`."""
        self.label = partition or f"database {store.url}"
        """The name of the job in errors."""
        self.event_loop = event_loop
        check_states(state)
        sinks = sinks or {}
        require("sinks=", repr(sinks), isinstance(sinks, Mapping), "{name: Sink}")
        self.program = Program(
            dict(state),
            sinks,
            event_loop.lock,
            steps,
            event_loop.effects.clock,
            self.end_error,
            self.break_off,
        )
        job = Job(name)
        job.called_by(self.program, name=_OPERATOR, sinks=sinks)
        self._runner = JobRunner(job, store, config, event_loop.effects, resources=resources)
        self._is_partition = partition is not None
        self._running: concurrent.futures.Future[None] | None = None
        """Done when the job has ended; None before the start and after the end."""
        self._task: asyncio.Task[None] | None = None
        self._step_error: Exception | None = None
        """What operations raise after a step that broke off."""

    @property
    def closed(self) -> bool:
        """Whether the job was not started, or everything is released, in this process."""
        return self._running is None or self.event_loop.forked

    @property
    def ended(self) -> bool:
        """Whether it is closed or was ended by an error, which `check` raises."""
        return self._running is None or self.event_loop.forked or self._running.done()

    def check(self) -> None:
        """Raise what has ended the job."""
        if self.program.steps.closed or self.event_loop.forked:
            raise self.end_error()

    def check_between_blocks(self, what: str) -> None:
        """Raise ConfigError within a step or operation of the caller, or as the process ends."""
        self.event_loop.check()
        if self.program.steps.this_owner().blocks:
            raise ConfigError(
                f"{what} of {self.label}",
                expected="it after the step",
                found="a block `with db.step():` of the same caller that has not ended",
                action="leave the block first: its changes are in a checkpoint together",
            )

    def end_step(self) -> None:
        """End the step of the caller for a checkpoint; raises as the checks."""
        self.check()
        self.check_between_blocks("a checkpoint")
        self.program.steps.end_step()

    def end_error(self) -> Exception:
        """Why the job has ended, or is about to."""
        if self.event_loop.forked:
            return forked_error(self.label)
        if self._step_error is not None:
            return self._step_error
        if (running := self._running) is not None:
            if not running.done():  # it is about to be, unless the caller holds the loop up
                self.event_loop.lock.check_between_operations()
            if (error := running.exception()) is not None:
                return self._with_label(error)
        reason, action = "closed", "open it again"
        if self._is_partition:
            reason, action = "taken from this process", "leave its input to its new owner"
        found = f"one that was {reason}, or stopped by `tidelog stop`"
        return ConfigError(self.label, expected="one that is open", found=found, action=action)

    def _with_label(self, error: BaseException) -> Exception:
        if self._is_partition and isinstance(error, TidelogError):
            return error.within(self.label)
        return error if isinstance(error, Exception) else RuntimeError(str(error))

    async def start(self) -> None:
        """Restore the states; raises why they cannot be, and releases everything then."""
        try:
            if not self._is_partition:
                await refuse_application(self._runner.store)
            running = self._running = concurrent.futures.Future()
            self._task = asyncio.ensure_future(self._run(running))
            restored = asyncio.wrap_future(self.program.restored)
            await asyncio.wait([restored, self._task], return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                raise self.end_error()
        except BaseException:
            await self.end()
            raise

    async def _run(self, running: "concurrent.futures.Future[None]") -> None:
        try:
            with suppress(asyncio.CancelledError):  # it was closed
                await self._run_controlled()
        except Exception as error:
            running.set_exception(error)
        else:
            running.set_result(None)

    async def _run_controlled(self) -> None:
        """Run the job, and answer for it on its control socket from its start to its end."""
        started = asyncio.Event()
        running = asyncio.ensure_future(self._runner.run(started.set))
        starting = asyncio.ensure_future(started.wait())
        try:
            await asyncio.wait([running, starting], return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                await control_until(
                    running,
                    self._runner,
                    lambda error: Event.CONTROL_UNAVAILABLE.log(logger, error=error),
                )
            await running
        finally:
            await discard([starting, running])

    @property
    def driver(self) -> CheckpointDriver:
        """What takes the checkpoints of the job, which runs."""
        incarnation = self._runner.incarnation
        assert incarnation is not None
        return incarnation.driver

    async def checkpoint(self) -> Checkpoint:
        """Wait for a checkpoint; raises what ends the job where that is why it fails, and
        CheckpointFailedError when one is given up for a step that does not end.
        """
        taking = asyncio.ensure_future(self.driver.checkpoint())
        overdue_step = self.program.overdue_step
        try:
            either: list[asyncio.Future[Any]] = [taking, overdue_step]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if taking.done():
                return taking.result()
        except CheckpointFailedError as error:
            if self._task is not None:
                await asyncio.wait([self._task])
            raise self.end_error() from error
        finally:
            taking.cancel()
        raise CheckpointFailedError(
            f"a checkpoint of {self.label}",
            expected="all steps to end within `checkpoint.timeout`",
            found=f"the open step of {overdue_step.result()}",
            action="end the step, or keep steps short: wait for nothing within one",
        )

    async def checkpoint_changes(self) -> None:
        """A checkpoint, unless it would be the last one again."""
        if self.ended:
            raise self.end_error()
        if await self.driver.change():
            await self.checkpoint()

    async def savepoint(self, name: str | None) -> Savepoint:
        """Wait for a checkpoint that is kept; raises SavepointFailedError."""
        return await self._runner.savepoint(name)

    async def flush(self) -> None:
        """Bring what is only in the write buffer to the table, which scans read."""
        for _ in self.program.backend.flush_in_steps(settle=True):
            await self.event_loop.effects.clock.sleep(0)

    def break_off(self, reason: str) -> None:
        """End it where it is, as a step that has changed something broke off; called anywhere."""
        if self.event_loop.forked or self.program.steps.closed:
            return
        self._step_error = self._step_error or UserFunctionError(
            f"a step of {self.label}",
            expected="to end",
            found=reason,
            action="open the database again: it goes on from its last checkpoint",
        )
        self.program.steps.end()
        self.event_loop.start(self._cancel())

    async def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def end(self) -> None:
        """End it where it is, and release everything."""
        await self._cancel()
        self._running = None
        await self._runner.store.close()
