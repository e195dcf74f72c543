"""A process that is suspended at any await of its start, while a successor runs, loses nothing.

Every process has an event loop of its own, and a suspended one is a loop that is not run: what
SIGSTOP or a paused virtual machine does. A loop that is never run again is `kill -9`.
"""

import asyncio
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from tests.support.clock import VirtualClock
from tests.support.depth import more_in_depth
from tests.support.faults import FaultyStore
from tests.support.pipelines import config
from tests.unit.connectors.sinks.job import copying
from tests.unit.connectors.sinks.outputs import KINDS, Output, output
from tidelog import JobResult, JobRunner, TidelogError
from tidelog.effects import Effects, InlineOffload, SystemClock
from tidelog.storage.memory import MemoryStore

NUMBERS = [(n,) for n in range(60)]


class Awaiting(FaultyStore):
    """A store whose calls can be suspended before and after their effect."""

    def __init__(self, shared: MemoryStore) -> None:
        super().__init__(shared, (), SystemClock())
        self.created: list[str] = []

    async def _suffer(self, struck: Any, operation: str, name: str, *, after: bool) -> None:
        if after and operation == "create":
            self.created.append(name)
        await asyncio.sleep(0)


class Offloading(InlineOffload):
    """Calls that a thread would make: the process can be suspended before and after each."""

    async def run(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        await asyncio.sleep(0)
        answer = function(*args, **kwargs)
        await asyncio.sleep(0)
        return answer


class Process:
    """One incarnation, run step by step on a loop of its own."""

    def __init__(self, out: Output, store: MemoryStore, seed: int, *, retain: int = 1) -> None:
        self.store = Awaiting(store)
        self.loop = asyncio.new_event_loop()
        self.started = False
        effects = Effects(VirtualClock(), Random(seed), Offloading())
        settings = config(parallelism=1, retain=retain)
        job = copying(NUMBERS, out.sink())
        self._runner = JobRunner(job, self.store, settings, effects)
        self._task = self.loop.create_task(self._runner.run(self._on_started))

    def _on_started(self) -> None:
        self.started = True

    def step(self) -> bool:
        """Run what is ready once; False when the process has ended."""
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()
        return not self._task.done()

    def run(self) -> JobResult:
        while self.step():
            pass
        return self._task.result()

    @property
    def slots(self) -> int:
        """Slots that it has written, its start included."""
        return len({name for name in self.store.created if name.startswith("checkpoints/")})

    def discard(self) -> None:
        """Free what a process that was killed would have left to the system."""
        left = asyncio.all_tasks(self.loop)
        for task in left:
            task.cancel()
        self.loop.run_until_complete(_ended(left))
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()


async def _ended(tasks: set["asyncio.Task[Any]"]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)


def killed_behind(process: Process, slots: int) -> Process:
    """Run until so many of its slots exist, and not one step further: sinks have not committed."""
    while process.slots < slots:
        assert process.step()
    return process


def steps_of_a_start(kind: str, request: pytest.FixtureRequest) -> int:
    out, store = output(kind, request, 10_000), MemoryStore()
    first = killed_behind(Process(out, store, 1), 4)
    counted, steps = Process(out, store, 2), 0
    while not counted.started:
        assert counted.step()
        steps += 1
    counted.discard()
    first.discard()
    return steps


@pytest.mark.parametrize("kind", KINDS)
def test_a_start_suspended_anywhere_loses_nothing_of_its_successor(
    kind: str, request: pytest.FixtureRequest
) -> None:
    # All steps would take PostgreSQL most of a minute, and Iceberg several.
    strides = {"postgres": more_in_depth(13, 3), "iceberg": more_in_depth(140, 3)}
    stride = strides.get(kind, more_in_depth(6, 1))
    for held_at in range(0, steps_of_a_start(kind, request) + 3, stride):
        out, store = output(kind, request, held_at), MemoryStore()
        first = killed_behind(Process(out, store, 1), 4)
        shown = len(out.shown())
        late = Process(out, store, 2)
        for _ in range(held_at):
            assert late.step()
        # Its last checkpoint is durable, and what it pre-committed is not committed.
        successor = killed_behind(Process(out, store, 3), 4)
        assert len(out.shown()) > shown, "the successor went on meanwhile"
        with suppress(TidelogError):
            late.run()
        last = Process(out, store, 4)
        last.run()
        assert sorted(out.shown()) == [n for (n,) in NUMBERS], f"held at step {held_at}"
        assert out.hidden() == 0
        for process in (first, late, successor, last):
            process.discard()
