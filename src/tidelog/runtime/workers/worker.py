"""A worker: it runs its share of a job's subtasks.

Invariants: it does what the parent says and decides nothing of a checkpoint; without the parent it
ends at once.
"""

import asyncio
import logging
import math
import pickle
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import msgspec

from tidelog.checkpoint.manifest import SubtaskState
from tidelog.checkpoint.slots import SlotLog
from tidelog.concurrency import SharedTasks
from tidelog.effects import Effects
from tidelog.errors import TidelogError
from tidelog.events import Event
from tidelog.ids import CheckpointId, SubtaskId
from tidelog.runtime.config import JobConfig
from tidelog.runtime.graph import Job
from tidelog.runtime.restore.plan import plan_restore
from tidelog.runtime.status.observe import status_of_worker
from tidelog.runtime.status.status import JobStatus
from tidelog.runtime.subtasks.incarnation import LocalSubtasks, run_until_done
from tidelog.runtime.subtasks.start import JobStart, open_copies
from tidelog.runtime.subtasks.state import SubtaskStates
from tidelog.runtime.subtasks.vertices import Share
from tidelog.runtime.workers import messages as m
from tidelog.runtime.workers.link import Connect, Exchange, Link
from tidelog.storage.ledger import Ledger
from tidelog.storage.port import ObjectStore

logger = logging.getLogger(__name__)

T = TypeVar("T")

_ALIVE_S: Final = 1.0
"""How often a worker says how it is."""
_AHEAD_S: Final = 0.1
"""How often it says how far event time is in its splits, when that has changed."""


@dataclass(frozen=True)
class Work:
    """What every worker of a job is made from; it is there before the first fork."""

    job: Job
    config: JobConfig
    """The job's, whose `workers` there are."""
    open_store: Callable[[Effects], ObjectStore]
    open_origin: Callable[[Effects], ObjectStore] | None = None
    """Opens the other store that a checkpoint is restored from."""


class Closed(Exception):
    """The parent has told the worker to end."""


class Worker:
    """One worker; it is the checkpoint listener of its tasks."""

    def __init__(self, work: Work, number: int, process: int, effects: Effects) -> None:
        self._work = work
        self._process = process
        self._share = Share(number, work.config.workers)
        self._effects = effects
        self._exchange = Exchange(self._share)
        self._inbox: asyncio.Queue[Any] = asyncio.Queue()
        self._told_to_end = asyncio.Event()
        self._failure: Exception = Closed()
        """Why it ends then."""
        self._parent: Link
        self.subtasks: LocalSubtasks | None = None
        """The subtasks of this worker; None until the parent has said what to restore."""
        self._running = False
        self._uploads = SharedTasks()

    async def run(self, parent: Connect, peers: Mapping[int, Connect]) -> None:
        """Work until the parent says that it is enough, or is gone."""
        self._parent = await parent(self._received, lambda _: self._told_to_end.set())
        for worker, connect in peers.items():
            self._exchange.connect(worker, await connect(self._exchange.received, self._peer_lost))
        stores: list[ObjectStore] = []
        try:
            stores.append(self._work.open_store(self._effects))
            if self._work.open_origin is not None:
                stores.append(self._work.open_origin(self._effects))
            await run_until_done([self._work_on(stores)], [self._end_when_told()])
        except Closed:
            pass
        except Exception as error:
            is_tidelog_error = isinstance(error, TidelogError)
            Event.WORKER_FAILED.log(
                logger, exc_info=not is_tidelog_error, worker=self._share.worker, error=error
            )
            self._parent.send(m.WorkerFailed(_sendable(error)))
        finally:
            await self._uploads.close()
            for store in stores:
                await store.close()
            self._parent.close()

    def _received(self, message: Any) -> None:
        if isinstance(message, m.Close):
            self._told_to_end.set()
        else:
            self._inbox.put_nowait(message)

    def _peer_lost(self, error: Exception | None) -> None:
        # A worker that is gone the parent notices, too; what its messages have raised nobody else.
        if error is not None and not isinstance(error, OSError):
            self._failure = error
            self._told_to_end.set()

    async def _end_when_told(self) -> None:
        await self._told_to_end.wait()
        raise self._failure

    async def _work_on(self, stores: list[ObjectStore]) -> None:
        begin_with = await self._next(m.Restore)
        start = await self._start(begin_with, stores)
        states = SubtaskStates(start)
        self.subtasks = subtasks = LocalSubtasks(
            states, lambda subtask: self._parent.send(m.Exited(subtask))
        )
        succeeded = False
        try:
            await run_until_done([self._run(start, subtasks)], [self._say_alive()])
            succeeded = True
        finally:
            if start.uploader is not None:
                start.uploader.leave()
            await states.close(quietly=not succeeded)
        self._parent.send(m.TasksEnded(await self._objects(), self._status()))
        await self._obey(start, subtasks)

    async def _run(self, start: JobStart, subtasks: LocalSubtasks) -> None:
        await subtasks.restore()
        self._parent.send(m.SubtasksRestored())
        await self._next(m.Build)
        await subtasks.build(self)
        declared = {vertex.id: self._declared(vertex.id) for vertex in start.plan.vertices}
        resumed_sources = {source for source, splits in subtasks.splits.items() if splits.resumes}
        self._parent.send(m.Alive(self._status()))  # what was restored, before the job says it runs
        self._parent.send(m.Built(declared, resumed_sources))
        for source in (await self._next(m.Run)).resumed_sources & subtasks.splits.keys():
            subtasks.splits[source].resumes = True
        for splits in subtasks.splits.values():
            splits.alignment.set_remote_watermark(-math.inf)  # until the others have said
        services = [self._obey(start, subtasks), self._say_ahead(subtasks), *subtasks.services()]
        self._running = True
        try:
            await run_until_done(subtasks.main(), services)
        finally:
            self._running = False

    async def _start(self, begin_with: m.Restore, stores: list[ObjectStore]) -> JobStart:
        directory = begin_with.directory / f"worker-{self._share.worker}"
        directory.mkdir()
        job_config = replace(self._work.config, drop_in_flight=begin_with.drop_in_flight)
        config, resumption = job_config.of_worker(), begin_with.resumption
        if len(stores) > 1 and begin_with.from_origin:
            resumption = msgspec.structs.replace(resumption, origin=stores[1])
        return JobStart(
            self._work.job,
            config,
            self._effects,
            plan_restore(self._work.job, resumption, job_config),
            begin_with.author,
            begin_with.history,
            stores[0],
            SlotLog(stores[0], self._effects),
            Ledger(),
            directory,
            await open_copies(stores[0], config, self._effects, self._share.workers),
            share=self._share,
            exchange=self._exchange,
        )

    async def _next(self, kind: type[T]) -> T:
        message = await self._inbox.get()
        assert isinstance(message, kind), message
        return message

    async def _obey(self, start: JobStart, subtasks: LocalSubtasks) -> None:
        tasks = {task.id: task for task in subtasks.tasks}
        while True:
            match await self._inbox.get():
                case m.Call(subtask, method, arguments, reply):
                    result = getattr(tasks[subtask], method)(*arguments)
                    if reply is not None:
                        self._parent.send(m.Reply(reply, await result))
                case m.CadenceCall(method, argument):
                    if method == "triggered":
                        argument = sum(not task.exited for task in subtasks.tasks)
                    getattr(start.cadence, method)(argument)
                case m.ListObjects(reply):
                    if start.copies is not None:
                        await start.copies.recount()
                    self._parent.send(m.Reply(reply, await self._objects()))
                case m.UploadAgain(reply, lost):
                    # It takes long, and other messages wait meanwhile.
                    self._uploads.start(self._upload_again(subtasks, reply, lost))
                case m.Ahead(watermarks):
                    for source, watermark in watermarks.items():
                        subtasks.splits[source].alignment.set_remote_watermark(watermark)

    async def _upload_again(self, subtasks: LocalSubtasks, reply: int, lost: Set[str]) -> None:
        await subtasks.upload_again(lost)
        self._parent.send(m.Reply(reply))

    async def _say_alive(self) -> None:
        while True:
            self._parent.send(m.Alive(self._status()))
            await self._effects.clock.sleep(_ALIVE_S)

    async def _say_ahead(self, subtasks: LocalSubtasks) -> None:
        last_sent = None
        while subtasks.splits:
            ahead = {source: splits.watermark for source, splits in subtasks.splits.items()}
            if ahead != last_sent:
                self._parent.send(m.Ahead(ahead))
                last_sent = ahead
            await self._effects.clock.sleep(_AHEAD_S)
        await asyncio.Event().wait()

    def _status(self) -> JobStatus:
        assert self.subtasks is not None
        return status_of_worker(self.subtasks, self._process, running=self._running)

    async def _objects(self) -> m.WorkerObjects:
        assert self.subtasks is not None
        ledger = self.subtasks.states.start.ledger
        in_use = ledger.closure(await self.subtasks.live_objects()) | ledger.busy
        return m.WorkerObjects(ledger.hand_over(in_use), in_use)

    def _declared(self, vertex: str) -> m.Registered:
        assert self.subtasks is not None
        registry = self.subtasks.states.start.registries[vertex]
        return m.Registered(registry.infos(), registry.keys.names())

    # --- the listener of its tasks

    def acknowledged(self, checkpoint: CheckpointId, task: SubtaskId, state: SubtaskState) -> None:
        assert self.subtasks is not None
        ledger, ref = self.subtasks.states.start.ledger, state.materialization
        parts = {ref.descriptor: ledger.parts(ref.descriptor)} if ref is not None else {}
        declared = self._declared(task.operator)
        self._parent.send(m.Acknowledged(checkpoint, task, state, declared, parts))

    def declined(self, checkpoint: CheckpointId, reason: str) -> None:
        self._parent.send(m.Report("declined", (checkpoint, reason)))

    def found_input(self) -> None:
        self._parent.send(m.Report("found_input", ()))

    def at_end(self, task: SubtaskId, splits: int | None = None) -> None:
        self._parent.send(m.Report("at_end", (task, splits)))

    def ended(self, task: SubtaskId) -> None:
        self._parent.send(m.Report("ended", (task,)))

    def keep_aligned(self, reason: str) -> None:
        self._parent.send(m.Report("keep_aligned", (reason,)))


def _sendable(error: Exception) -> Exception:
    """The error, or what it says where it has no pickle."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
