"""A database: durable state by key for a program that has a loop of its own.

Invariants: the job behind it runs in an event loop on a thread of its own; whatever ends it ends
the database too, and the next operation of the program raises the reason; what is durable is what
the last checkpoint holds, and a program that goes on from its `position` loses and doubles nothing.
"""

import asyncio
import concurrent.futures
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from tidelog.checkpoint.manifest import Checkpoint, Savepoint
from tidelog.errors import (
    CheckpointFailedError,
    ConfigError,
    StorageError,
    TidelogError,
    UserFunctionError,
)
from tidelog.events import Event
from tidelog.library.declarations import State
from tidelog.library.event_loop import EventLoop
from tidelog.library.handles import KeyStates
from tidelog.library.program import Program
from tidelog.library.scan import scanned
from tidelog.library.state_lock import StateLock
from tidelog.runtime.config import JobConfig
from tidelog.runtime.control.server import control_until
from tidelog.runtime.graph import Job
from tidelog.runtime.runner import JobRunner
from tidelog.runtime.sink import Sink
from tidelog.runtime.subtasks.resources import Resources
from tidelog.storage.port import ObjectStore

logger = logging.getLogger(__name__)

_OPERATOR: Final = "state"


class Database:
    """Durable state by key; operations may come from any thread.

    All operations raise the error that ended the database, if one has.
    """

    def __init__(
        self,
        store: ObjectStore,
        state: Mapping[str, State],
        name: str,
        config: JobConfig,
        event_loop: EventLoop,
        on_closed: Callable[[], None],
        sinks: Mapping[str, Sink] | None = None,
        *,
        lock: StateLock | None = None,
        label: str | None = None,
        resources: Resources | None = None,
    ) -> None:
        """`label` is what errors call it when it is a partition, of those that share `resources`;
        a partition takes no checkpoints while nothing changes.
        """
        self._partition = label is not None
        self.label = label or f"database {store.url}"
        """What errors call it."""
        sinks, lock = dict(sinks or {}), lock or StateLock(event_loop.lock)
        self._program = Program(
            dict(state),
            sinks,
            lock,
            self._ending,
            self._abandoned,
            skip_unchanged_checkpoints=self._partition,
        )
        job = Job(name)
        job.called_by(self._program, name=_OPERATOR, sinks=sinks)
        self._runner = JobRunner(job, store, config, event_loop.effects, resources=resources)
        self._event_loop = event_loop
        self._on_closed = on_closed
        self._running: concurrent.futures.Future[None] | None = None
        """Done when the job has ended; None before it is started and after the close."""
        self._job: asyncio.Task[None] | None = None
        self._broken: Exception | None = None
        """Why a step broke off."""

    @property
    def ended(self) -> bool:
        """Whether the database is closed or was ended by an error, which operations then raise."""
        return self._running is None or self._running.done()

    @property
    def in_own_step(self) -> bool:
        """The calling thread has changed something since its last step ended."""
        return self._program.in_own_step

    @property
    def position(self) -> dict[Any, Any] | None:
        """The position of each partition in the last durable checkpoint; None when it has none.

        After `open` it says where to go on; later it is what may be told to others as done.
        """
        return dict(self._program.durable) or None

    def key(self, key: Any) -> KeyStates:
        """The states of a key: a str, int (64 bits), bool, bytes, float, None or a tuple of these.

        Keep it for as long as you like: it is nothing but names.
        """
        return self._program.key(key)

    def scan(
        self, name: str, *, prefix: Any = None, after: Any = None
    ) -> Iterator[tuple[Any, ...]]:
        """The keys of a state with their values: (key, value), (key, elements) of a List, and for a
        Map (key, key of the entry, value) of every entry.

        In the order in which keys are stored: numbers from 0 up, after them the negative ones;
        texts and bytes by length, those of one length by their bytes; tuples by length, then part
        by part. `prefix` takes only keys that begin with this text, bytes or tuple, `after` only
        those behind this key. What was set before the scan is in it; what is set or deleted
        meanwhile may be. No key comes twice. Memory is bounded, and others go on all the time.
        """
        self._check()
        part = self._program.part(name)
        found = scanned([part], prefix, after)
        self._event_loop.ask(self._flushed())
        return found

    def write(self, sink: str, record: Any) -> None:
        """Write a record to one of the `sinks`, as a part of the calling thread's step.

        Do not change the record any more. It is visible, and visible once, when a checkpoint with
        the step is durable; waits while the sink has no room. What a sink says of a record that it
        cannot write ends the database. Raises ConfigError for a sink there is none of.
        """
        self._program.write(sink, record)

    def advance(self, partition: Any, position: Any) -> None:
        """The program has done all that belongs to a position of a partition.

        This ends a step: a checkpoint holds all changes that the calling thread has made since the
        step before, and this position, or none of them.
        """
        self._program.advance(partition, position)

    @contextmanager
    def step(self) -> Iterator[None]:
        """The changes in the block are in one checkpoint, all of them; for programs without
        positions.

        A block within another one of the same thread is a part of that step, and so are positions:
        `advance` does not end it. A block that breaks off after it has changed something ends the
        database, for nobody can take back its changes: open it again, and it goes on from its last
        checkpoint.
        """
        self._check()
        lock = self._program.lock
        lock.enter_block()
        try:
            yield
        except BaseException as error:
            lock.leave_block()
            if self._program.in_own_step:
                self._event_loop.ask(self._broken_by(found_in(error)))
            raise
        if lock.leave_block():
            self._program.end_step()

    def checkpoint(self) -> Checkpoint:
        """Wait until all that was changed is durable, and end the step of the calling thread.

        Raises CheckpointFailedError, ConfigError within a block of a step, and what has ended the
        database.
        """
        self._end_step()
        try:
            return self._event_loop.ask(self._checkpoint())
        except CheckpointFailedError as error:
            raise self._ending() from error

    def savepoint(self, name: str | None = None) -> Savepoint:
        """Wait for a checkpoint that is kept until somebody drops it, and end the calling thread's
        step; raises SavepointFailedError, and ConfigError within a block of a step.
        """
        self._end_step()
        return self._event_loop.ask(self._runner.savepoint(name))

    def close(self) -> None:
        """Take a last checkpoint, and release everything. A step that is open is part of it."""
        if self._running is None:
            return
        self._check_between_blocks("close")
        try:
            self.checkpoint()
        finally:
            self._stop()

    def __enter__(self) -> "Database":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:  # whatever broke the loop broke a step: the next start goes on from the last one
            self._stop()

    async def _start(self) -> None:
        """In the event loop: restore the states; raises why they cannot be, and closes then."""
        running = self._running = concurrent.futures.Future()
        self._job = asyncio.ensure_future(self._live(running))
        began = asyncio.wrap_future(self._program.began)
        try:
            await asyncio.wait([began, self._job], return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            await self._end()
            raise
        if running.done():
            await self._end()
            if not running.cancelled() and (error := running.exception()) is not None:
                raise self._named(error)
            raise self._ending()

    async def _live(self, ended: "concurrent.futures.Future[None]") -> None:
        try:
            await self._run()
        except asyncio.CancelledError:
            ended.cancel()
        except Exception as error:
            ended.set_exception(error)
        else:
            ended.set_result(None)

    async def _run(self) -> None:
        """Run the job, and answer for it on its control socket from its start to its end."""
        started = asyncio.Event()
        running = asyncio.ensure_future(self._runner.run(started.set))
        starting = asyncio.ensure_future(started.wait())
        try:
            await asyncio.wait([running, starting], return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                await control_until(running, self._runner, _uncontrolled)
            await running
        finally:
            starting.cancel()
            running.cancel()
            await asyncio.gather(running, starting, return_exceptions=True)

    async def _settle(self) -> None:
        """In the event loop: a checkpoint, unless it would be the last one again."""
        incarnation, job = self._runner.incarnation, self._job
        if self.ended:
            raise self._ending()
        assert incarnation is not None and job is not None
        if incarnation.driver.unchanged:
            return
        try:
            await incarnation.driver.checkpoint()
        except CheckpointFailedError as error:
            await asyncio.wait([job])
            raise self._ending() from error

    async def _checkpoint(self) -> Checkpoint:
        incarnation = self._runner.incarnation
        assert incarnation is not None
        return await incarnation.driver.checkpoint()

    async def _flushed(self) -> None:
        """Bring what is only in the write buffer to the table, which scans read."""
        for _ in self._program.backend.flush_in_steps(settle=True):
            await self._event_loop.effects.clock.sleep(0)

    def _end_step(self) -> None:
        """End the step of the caller; raises ConfigError within a block of it."""
        self._check()
        self._check_between_blocks("a checkpoint")
        self._program.end_step()

    def _check_between_blocks(self, what: str) -> None:
        if self._program.lock.in_block:
            raise ConfigError(
                f"{what} of {self.label}",
                expected="it after the step",
                found="a block `with db.step():` of the same caller that has not ended",
                action="leave the block first: its changes are in a checkpoint together",
            )

    def _check(self) -> None:
        """Raise what has ended the database."""
        if self._program.lock.closed:
            raise self._ending()

    def _ending(self) -> Exception:
        """Why the database has ended, or is about to."""
        running = self._running
        if self._broken is not None:
            return self._broken
        if running is not None:
            concurrent.futures.wait([running])
            if not running.cancelled() and (error := running.exception()) is not None:
                return self._named(error)
        if self._partition:
            return ConfigError(
                self.label,
                expected="a partition that this process has",
                found="one that was taken from it, or stopped by `tidelog stop`",
                action="leave its input to the process that has it now",
            )
        return ConfigError(
            self.label,
            expected="one that is open",
            found="one that was closed, or stopped by `tidelog stop`",
            action="open it again",
        )

    def _named(self, error: BaseException) -> Exception:
        if self._partition and isinstance(error, TidelogError):
            return error.within(self.label)
        return error if isinstance(error, Exception) else RuntimeError(str(error))

    def _stop(self) -> None:
        try:
            self._event_loop.ask(self._end())
        finally:
            self._on_closed()

    def _abandoned(self, thread: str) -> None:
        """A thread has ended with its step open."""
        self._event_loop.start(
            self._broken_by(f"the end of thread {thread!r}, which has changed something in it")
        )

    async def _broken_by(self, found: str) -> None:
        """In the event loop: end it, as a step that has changed something broke off."""
        self._broken = UserFunctionError(
            f"a step of {self.label}",
            expected="to end",
            found=found,
            action="open the database again: it goes on from its last checkpoint",
        )
        await self._cancel()

    async def _cancel(self) -> None:
        """In the event loop: end the job where it is, and wait for its end."""
        if self._job is not None:
            self._job.cancel()
            await asyncio.wait([self._job])

    async def _end(self) -> None:
        """In the event loop: end the job where it is, and release everything."""
        await self._cancel()
        self._running = None
        await self._runner.store.close()


def found_in(error: BaseException) -> str:
    """What broke a step off, for its error."""
    return f"{type(error).__name__}: {error}"


def _uncontrolled(error: StorageError) -> None:
    Event.CONTROL_UNAVAILABLE.log(logger, error=error)
