"""The parent of a job's workers: it restores, builds and runs the subtasks that they have.

Invariants: a worker that is lost, or says nothing for too long, ends the incarnation in all of
them; what a worker reports of a checkpoint reaches the coordinator in the order it was said.
"""

import asyncio
import itertools
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import msgspec

from tidelog.checkpoint.config import Change
from tidelog.concurrency import together
from tidelog.effects import Effects, Offload, wait_for
from tidelog.errors import WorkerLostError
from tidelog.ids import CheckpointId, SubtaskId
from tidelog.runtime.channels.messages import Barrier
from tidelog.runtime.status.status import JobStatus
from tidelog.runtime.subtasks.incarnation import Loop, run_until_done
from tidelog.runtime.subtasks.start import JobStart
from tidelog.runtime.subtasks.vertices import Share
from tidelog.runtime.tasks.task_checkpoints import CheckpointListener
from tidelog.runtime.workers import messages as m
from tidelog.runtime.workers.link import Connect, Link

T = TypeVar("T")

_WATCH_S: Final = 1.0
_END_S: Final = 5.0
"""Seconds that workers have to close what they have open."""


class WorkerProcess(NamedTuple):
    """A worker that was started."""

    name: str
    """As errors have it."""
    connect: Connect
    end: Callable[[], Awaitable["WorkerEnd"]]
    """How it ended, once it is gone; raises NoMoreWorkersError where none can be started."""


class WorkerEnd(NamedTuple):
    """How a worker ended."""

    found: str = "its end"
    action: str = "see the messages before this one"


class Processes(Protocol):
    """The port for what starts the workers of a job."""

    async def start(self, offload: Offload) -> Sequence[WorkerProcess]:
        """Start the workers."""

    async def kill(self, offload: Offload) -> None:
        """Kill the workers that still run."""


class RemoteWorker:
    """One worker, as the parent sees it."""

    def __init__(self, process: WorkerProcess, effects: Effects) -> None:
        self.process = process
        self.link: Link
        self.inbox: asyncio.Queue[Any] = asyncio.Queue()
        self.exit_event = asyncio.Event()
        self.status: JobStatus | None = None
        self.in_use: Set[str] = frozenset()
        """The objects that it may yet refer to, as it has last said."""
        self._written: set[str] = set()
        self.done = False
        self._clock = effects.clock
        self._last_at = self._clock.monotonic()
        self._replies: dict[int, asyncio.Future[Any]] = {}
        self._numbers = itertools.count()

    def received(self, message: Any) -> None:
        """Take what the worker says; what is to be handled in order waits in the inbox."""
        self._last_at = self._clock.monotonic()
        match message:
            case m.Alive(status):
                self.status = status
            case m.Reply(number, result):
                if isinstance(result, m.WorkerObjects):
                    self._note(result)
                answer = self._replies.pop(number)
                if not answer.done():  # nobody waits for it any more
                    answer.set_result(result)
            case m.TasksEnded(objects, status):
                self.done, self.status = True, status
                self._note(objects)
                self.inbox.put_nowait(message)
            case _:
                self.inbox.put_nowait(message)

    def _note(self, objects: m.WorkerObjects) -> None:
        """Also where nobody waits for the answer any more: names are said once."""
        self.in_use = objects.in_use
        self._written |= objects.names

    def written(self) -> Set[str]:
        """The objects that it has written since the last call, as far as it has said."""
        written, self._written = self._written, set()
        return written

    def lost(self, error: Exception | None) -> None:
        self.exit_event.set()
        self.inbox.put_nowait(_Gone(error))

    async def check(self, silence_s: float) -> None:
        """Raises WorkerLostError when the worker is gone, or silent for so many seconds."""
        # Also after all of its tasks: others may take their records yet.
        if self.exit_event.is_set():
            raise await self.end()
        silent = self._clock.monotonic() - self._last_at
        if silent > silence_s and not self.done:
            raise self._error(f"nothing from it for {silent:.0f} s: it hangs, or is stopped")

    async def end(self, error: Exception | None = None) -> WorkerLostError:
        """The error of a worker that is gone; raises NoMoreWorkersError where none can follow."""
        if error is not None and not isinstance(error, OSError):
            return self._error(f"its end by {error!r}")
        return self._error(*await self.process.end())

    def _error(self, found: str, action: str = WorkerEnd().action) -> WorkerLostError:
        return WorkerLostError(
            self.process.name,
            expected="to work until the job ends",
            found=found,
            action=f"{action}; another start resumes from the last checkpoint",
        )

    async def ask(self, request: Callable[[int], Any]) -> Any:
        """The answer to a request, which is made by its number."""
        number = next(self._numbers)
        answer = self._replies[number] = asyncio.get_running_loop().create_future()
        self.link.send(request(number))
        return await answer

    async def next(self, kind: type[T]) -> T:
        """What the worker says next, which is of this kind; raises the error it ends by."""
        message = await self.inbox.get()
        if isinstance(message, m.WorkerFailed):
            raise message.error
        if isinstance(message, _Gone):
            raise await self.end(message.error)
        assert isinstance(message, kind), message
        return message


class _Gone(NamedTuple):
    """The link to a worker is lost."""

    error: Exception | None


class RemoteTask:
    def __init__(self, worker: RemoteWorker, subtask: SubtaskId) -> None:
        self.id = subtask
        self.exited = False
        self._worker = worker

    async def change(self) -> Change:
        change: Change = await self._ask("change")
        return change

    def trigger(self, barrier: Barrier) -> None:
        self._call("trigger", barrier)

    def begin(self) -> None:
        self._call("begin")

    def drain(self) -> None:
        self._call("drain")

    def end(self) -> None:
        self._call("end")

    def abort(self, checkpoint: CheckpointId) -> None:
        self._call("abort", checkpoint)

    def leave(self) -> None:
        self._call("leave")

    async def complete(self, checkpoint: CheckpointId) -> None:
        """Commit; one that has exited has committed all before."""
        if not self.exited:
            await self._ask("complete", checkpoint)

    async def _ask(self, method: str, *arguments: Any) -> Any:
        return await self._worker.ask(lambda number: m.Call(self.id, method, arguments, number))

    def _call(self, method: str, *arguments: Any) -> None:
        self._worker.link.send(m.Call(self.id, method, arguments))


class Workers:
    """The workers of a job, through its starts."""

    def __init__(self, processes: Processes, effects: Effects) -> None:
        self._processes = processes
        self._effects = effects
        self.running: list[RemoteWorker] = []
        """The workers of the start that runs; none between two starts."""

    def of(self, start: JobStart) -> "RemoteSubtasks":
        """The subtasks of a start, all of them in workers."""
        return RemoteSubtasks(start, self)

    async def begin(self) -> Sequence[RemoteWorker]:
        for process in await self._processes.start(self._effects.offload):
            worker = RemoteWorker(process, self._effects)
            worker.link = await process.connect(worker.received, worker.lost)
            self.running.append(worker)
        return self.running

    def pace(self, method: str, argument: Any) -> None:
        """Pass on what the cadence of checkpoints is told."""
        for worker in self.running:
            worker.link.send(m.CadenceCall(method, argument))

    async def end(self) -> None:
        """Let the workers close what they have open, and end those that do not."""
        for worker in self.running:
            worker.link.send(m.Close())
        until = self._effects.clock.monotonic() + _END_S
        for worker in self.running:
            remaining = max(0.0, until - self._effects.clock.monotonic())
            await wait_for(worker.exit_event, self._effects.clock, remaining)
        await self._processes.kill(self._effects.offload)
        for worker in self.running:
            worker.link.close()
        self.running = []


class RemoteSubtasks:
    tasks = ()

    def __init__(self, start: JobStart, workers: Workers) -> None:
        self._start = start
        self._of_job = workers
        self._workers: Sequence[RemoteWorker] = ()
        self._tasks: dict[SubtaskId, RemoteTask] = {}
        self._listener: CheckpointListener
        self._resumed_sources: frozenset[str] = frozenset()
        self._ahead: dict[RemoteWorker, Mapping[str, float]] = {}

    @property
    def elsewhere(self) -> Sequence[JobStatus]:
        return [worker.status for worker in self._workers if worker.status is not None]

    async def restore(self) -> None:
        """Start the workers, and let them load what is stored."""
        plan, start = self._start.plan, self._start
        self._workers = await self._of_job.begin()
        resumption = msgspec.structs.replace(plan.resumption, origin=None)
        origin = plan.resumption.origin is not None
        drop, directory = start.config.drop_in_flight, start.directory
        restore = m.Restore(start.author, start.history, resumption, origin, directory, drop)
        for worker in self._workers:
            worker.link.send(restore)
        await self._all(m.SubtasksRestored)

    async def build(self, listener: CheckpointListener) -> Sequence[RemoteTask]:
        """Let the workers build their tasks; all of them in the order of the job."""
        self._listener = listener
        for worker in self._workers:
            worker.link.send(m.Build())
        for message in await self._all(m.Built):
            self._resumed_sources |= message.resumed_sources
            for vertex_id, declared in message.declared.items():
                self._adopt(vertex_id, declared)
        share = Share(workers=len(self._workers))
        for vertex in self._start.plan.vertices:
            for subtask in vertex.subtasks:
                worker = self._workers[share.worker_of(subtask.subtask)]
                self._tasks[subtask] = RemoteTask(worker, subtask)
        return list(self._tasks.values())

    def main(self) -> list[Loop]:
        """Let all workers run, and follow each to its end."""
        for worker in self._workers:
            worker.link.send(m.Run(self._resumed_sources))
        return list(map(self._follow, self._workers))

    def services(self) -> list[Loop]:
        return [self._watch()]

    async def live_objects(self) -> set[str]:
        """What workers have written is known from then on; what they may yet refer to."""
        live: set[str] = set()
        for worker in self._workers:
            if not worker.done:
                await worker.ask(m.ListObjects)
            self._start.ledger.inherit(worker.written())
            live |= worker.in_use
        return live

    async def upload_again(self, lost: Set[str]) -> None:
        request = partial(m.UploadAgain, lost=lost)
        await together([worker.ask(request) for worker in self._workers if not worker.done])

    async def _all(self, kind: type[T]) -> list[T]:
        """What each worker says next, while all of them say something."""
        messages: dict[RemoteWorker, T] = {}

        async def receive(worker: RemoteWorker) -> None:
            messages[worker] = await worker.next(kind)

        await run_until_done(map(receive, self._workers), [self._watch()])
        return list(map(messages.__getitem__, self._workers))

    async def _watch(self) -> None:
        clock = self._start.effects.clock
        while True:
            before = clock.monotonic()
            await clock.sleep(_WATCH_S)
            if clock.monotonic() > before + 2 * _WATCH_S:
                continue  # this process stood still: what workers have said was not read yet
            for worker in self._workers:
                await worker.check(self._start.config.worker_timeout)

    async def _follow(self, worker: RemoteWorker) -> None:
        while True:
            match await worker.inbox.get():
                case m.Acknowledged(checkpoint, subtask, state, declared, parts):
                    for descriptor, objects in parts.items():
                        self._start.ledger.describe(descriptor, objects)
                    self._adopt(subtask.operator, declared)
                    self._listener.acknowledged(checkpoint, subtask, state)
                case m.Report(method, arguments):
                    getattr(self._listener, method)(*arguments)
                case m.Exited(subtask):
                    self._tasks[subtask].exited = True
                case m.Ahead(watermarks):
                    self._pass_on(worker, watermarks)
                case m.TasksEnded():
                    self._start.ledger.inherit(worker.written())
                    self._pass_on(worker, {})
                    return
                case m.WorkerFailed(error):
                    raise error
                case _Gone(error):
                    raise await worker.end(error)

    def _pass_on(self, sender: RemoteWorker, watermarks: Mapping[str, float]) -> None:
        """Tell each worker how far event time is in the others' splits, once all have said it."""
        self._ahead[sender] = watermarks
        if len(self._ahead) < len(self._workers):
            return
        for worker in self._workers:
            ahead = dict.fromkeys(self._ahead[worker], math.inf)
            for other in self._workers:
                if other is not worker:
                    for source in ahead:
                        watermark = self._ahead[other].get(source, math.inf)
                        ahead[source] = min(ahead[source], watermark)
            worker.link.send(m.Ahead(ahead))

    def _adopt(self, vertex: str, declared: m.Registered) -> None:
        self._start.registries[vertex].adopt(declared.states, declared.key_types)
