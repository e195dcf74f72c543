"""Two incarnations of a job at one output: the older one changes nothing, and knows why."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any, ParamSpec, TypeVar

import pytest

from tests.support.clock import VirtualClock
from tests.support.pipelines import Portions, config
from tests.unit.connectors.sinks.job import context
from tests.unit.connectors.sinks.outputs import KINDS, Output, output
from tidelog import Job, JobResult, JobRunner, TidelogError
from tidelog.effects import Effects, InlineOffload
from tidelog.errors import FencedError
from tidelog.ids import CheckpointId
from tidelog.runtime.sink import SinkContext
from tidelog.storage.memory import MemoryStore

P = ParamSpec("P")
T = TypeVar("T")

NUMBERS = [(n,) for n in range(40)]


class Held(InlineOffload):
    """Keeps the first call of one name until it is released."""

    def __init__(self, call: str) -> None:
        self._call = call
        self.reached = asyncio.Event()
        self.released = asyncio.Event()

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        if function.__name__ == self._call:
            self.reached.set()
            await self.released.wait()
        return function(*args, **kwargs)


def started(
    out: Output, store: MemoryStore, clock: VirtualClock, offload: InlineOffload, seed: int
) -> "asyncio.Task[JobResult]":
    job = Job("numbers")
    job.source(Portions({"all": NUMBERS})).sink(out.sink())
    effects = Effects(clock, Random(seed), offload)
    return asyncio.ensure_future(JobRunner(job, store, config(parallelism=1), effects).run())


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_successor_pre_committed_survives_a_start_that_goes_on_late(
    kind: str, request: pytest.FixtureRequest
) -> None:
    out, store, clock = output(kind, request), MemoryStore(), VirtualClock()

    def start(offload: InlineOffload, seed: int) -> "asyncio.Task[JobResult]":
        return started(out, store, clock, offload, seed)

    async def scenario() -> None:
        killed = start(InlineOffload(), 1)
        await clock.sleep(2.5)
        killed.cancel()
        with suppress(asyncio.CancelledError):
            await killed
        assert 0 < len(out.shown()) < len(NUMBERS), "it broke off in the middle"

        at_recovery, at_commit = Held("recover"), Held("commit")
        late = start(at_recovery, 2)
        await at_recovery.reached.wait()
        successor = start(at_commit, 3)
        await at_commit.reached.wait()
        at_recovery.released.set()
        with pytest.raises(TidelogError):
            await late
        assert out.hidden() > 0
        at_commit.released.set()
        await successor

    asyncio.run(scenario())
    assert sorted(out.shown()) == [n for (n,) in NUMBERS]
    assert out.hidden() == 0


def test_a_sink_that_finds_a_newer_one_stops_its_job_as_fenced(
    request: pytest.FixtureRequest,
) -> None:
    out, store, clock = output("postgres", request), MemoryStore(), VirtualClock()

    async def scenario() -> None:
        older = started(out, store, clock, InlineOffload(), 1)
        await clock.sleep(2.5)
        newer = started(out, store, clock, InlineOffload(), 2)
        with pytest.raises(FencedError, match="newest one that writes to its table"):
            await older
        await newer

    asyncio.run(scenario())
    assert sorted(out.shown()) == [n for (n,) in NUMBERS]


@pytest.mark.parametrize("kind", KINDS[:2])
def test_recovery_removes_what_older_generations_left_and_nothing_newer(
    kind: str, request: pytest.FixtureRequest
) -> None:
    out = output(kind, request)
    newer = stage(out, context(7, attempt="newer"))
    for older in (context(0, attempt="a"), context(3, attempt="a-b"), context(4, attempt="c")):
        stage(out, older)
    before = out.hidden()
    out.sink().open(context(4, attempt="d")).recover([])
    assert out.hidden() == before // 4
    out.sink().open(context(8)).recover([newer])
    assert (out.shown(), out.hidden()) == ([7], 0)


def stage(out: Output, owner: SinkContext) -> bytes:
    writer: Any = out.sink().open(owner)
    writer.write([(owner.generation,)])
    transaction = writer.pre_commit(CheckpointId(owner.generation))
    assert isinstance(transaction, bytes)
    return transaction
