"""Workers as actors of one event loop: the protocols of `--workers` without processes.

Messages cross as pickles, in order, each after a delay of its own; a worker that is killed sends
and receives nothing more.
"""

import asyncio
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import combinations
from random import Random
from typing import Any, Final

from tidelog.effects import Clock, Effects, Offload
from tidelog.runtime.config import JobConfig
from tidelog.runtime.graph import Job
from tidelog.runtime.runner import JobRunner
from tidelog.runtime.tasks.task import Task
from tidelog.runtime.workers.link import Connect, Link, Lost, Received, decode, encode
from tidelog.runtime.workers.parent import WorkerEnd, WorkerProcess, Workers
from tidelog.runtime.workers.worker import Work, Worker
from tidelog.storage.port import ObjectStore

NUMBER: Final = [int(os.environ.get("TIDELOG_TEST_WORKERS", "1"))]
"""How many workers `runner_of` gives to a job: `with_workers` sets it for a test."""


@contextmanager
def with_workers(number: int) -> Iterator[None]:
    """Give each job within so many workers."""
    NUMBER.append(number)
    try:
        yield
    finally:
        NUMBER.pop()


class Wire:
    """Both directions between two ends, `delay` after delay; a cut one loses what is under way."""

    def __init__(self, clock: Clock, delay: Callable[[], float]) -> None:
        self._clock = clock
        self._delay = delay
        self._ends: list[_End | None] = [None, None]
        self._queues: list[asyncio.Queue[bytes | None]] = [asyncio.Queue(), asyncio.Queue()]
        self._tasks: list[asyncio.Task[None]] = []
        self.silent = False
        """What is sent does not arrive."""

    def end(self, side: int) -> Connect:
        """How one side is opened."""

        async def connect(received: Received, lost: Lost) -> Link:
            end = self._ends[side] = _End(self, side, received, lost)
            self._tasks.append(asyncio.ensure_future(self._deliver(side)))
            return end

        return connect

    def send(self, side: int, data: bytes) -> None:
        self._queues[1 - side].put_nowait(data)

    def cut(self) -> None:
        """Nothing arrives any more, but that the other end is gone."""
        for queue in self._queues:
            queue.put_nowait(None)

    async def _deliver(self, side: int) -> None:
        while (data := await self._queues[side].get()) is not None:
            if self.silent:
                continue
            if (delay := self._delay()) > 0:
                await self._clock.sleep(delay)
            end = self._ends[side]
            assert end is not None
            try:
                end.received(decode(data))
            except Exception as error:
                self.cut()
                end.lost(error)
                return
        end = self._ends[side]
        assert end is not None
        end.lost(None)


class _End:
    def __init__(self, wire: Wire, side: int, received: Received, lost: Lost) -> None:
        self._wire = wire
        self._side = side
        self.received = received
        self.lost = lost

    def send(self, message: Any) -> None:
        self._wire.send(self._side, encode(message))

    def close(self) -> None:
        self._wire.cut()


async def _ended() -> WorkerEnd:
    """An actor has no process."""
    return WorkerEnd()


class Actors:
    """Starts the workers of a job as tasks of the running loop."""

    def __init__(
        self, work: Work, effects: Sequence[Effects], delay: Callable[[], float] = lambda: 0.0
    ) -> None:
        self._work = work
        self._effects = effects
        self._delay = delay
        self.running: list[asyncio.Task[None]] = []
        self.workers: list[Worker] = []
        self._wires: list[list[Wire]] = []

    async def start(self, offload: Offload) -> Sequence[WorkerProcess]:
        """New workers; those before are killed."""
        await self.kill(offload)
        numbers = range(self._work.config.workers)
        controls = [Wire(self._effects[0].clock, self._delay) for _ in numbers]
        peers = {
            pair: Wire(self._effects[0].clock, self._delay) for pair in combinations(numbers, 2)
        }
        for number in numbers:
            ends = {
                pair[1 - side]: between.end(side)
                for pair, between in peers.items()
                for side in (0, 1)
                if pair[side] == number
            }
            worker = Worker(self._work, number, 1000 + number, self._effects[number])
            self.workers.append(worker)
            self._wires.append([controls[number], *(w for p, w in peers.items() if number in p)])
            self.running.append(asyncio.ensure_future(worker.run(controls[number].end(1), ends)))
        return [
            WorkerProcess(f"worker {number}", controls[number].end(0), _ended) for number in numbers
        ]

    async def kill_one(self, number: int) -> None:
        for wire in self._wires[number]:
            wire.cut()
        self.running[number].cancel()
        await asyncio.gather(self.running[number], return_exceptions=True)

    def silence(self, number: int) -> None:
        """A worker hangs: nothing comes from it or reaches it, and no end is seen."""
        for wire in self._wires[number]:
            wire.silent = True

    async def kill(self, offload: Offload) -> None:
        for number in range(len(self.running)):
            await self.kill_one(number)
        self.running, self._wires, self.workers = [], [], []

    @property
    def tasks(self) -> list[Task]:
        return [task for w in self.workers if w.subtasks is not None for task in w.subtasks.tasks]


def runner_of(
    job: Job, store: ObjectStore, config: JobConfig, effects: Effects, **options: Any
) -> JobRunner:
    """A runner of the job, with as many workers as the test has."""
    number = NUMBER[-1]
    if number == 1:
        return JobRunner(job, store, config, effects, **options)
    rng = Random(number)
    late = lambda: max(0.0, rng.random() - 0.9) / 10  # noqa: E731
    config = replace(config, workers=number)
    return runner_of_actors(job, store, config, effects, late, **options)[0]


def runner_of_actors(
    job: Job,
    store: ObjectStore,
    config: JobConfig,
    effects: Effects,
    delay: Callable[[], float],
    **options: Any,
) -> tuple[JobRunner, Actors]:
    """A runner of the job, and the workers that it has by its configuration."""
    work = Work(job, config, lambda _: store)
    if (origin := options.get("restore_from")) is not None and origin.store is not None:
        work = replace(work, open_origin=lambda _: origin.store)
    actors = Actors(work, [effects] * config.workers, delay)
    workers = Workers(actors, effects)
    return JobRunner(job, store, config, effects, workers=workers, **options), actors
