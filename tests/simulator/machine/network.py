"""The way to the store: requests that are lost, slow, doubled, overtaken or orphaned.

Invariants: a request takes effect at one moment, all or nothing, and at most as often as it was
sent; the store itself is strongly consistent, as S3 is; a sender hears of an effect only after
it; what a dead sender has sent may still arrive.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Context
from dataclasses import dataclass
from random import Random
from typing import Any, Final, Protocol, TypeVar

from tests.simulator.machine.process import Process
from tests.simulator.run.scenario import Scenario
from tests.simulator.run.trace import Trace
from tests.support.faults import ForwardingStore
from tidelog.errors import TidelogError
from tidelog.storage.errors import object_at, store_unreachable
from tidelog.storage.memory import MemoryStore

T = TypeVar("T")

_USUAL_S: Final = 0.02
_SLOW_S: Final = 4.0
_NOTICED_S: Final = 0.3
"""How long a sender takes at most to notice that a request or an answer was lost."""
_WRITES: Final = frozenset({"put", "create", "delete"})


class Watcher(Protocol):
    """Sees what happens in the store, at that moment."""

    def written(self, process: Process, name: str) -> None: ...

    def deleted(self, process: Process, name: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of one request; times in seconds."""

    there: float
    back: float
    lost: bool = False
    unanswered: bool = False
    again: float | None = None
    """How long after the first the second copy arrives."""
    orphan_arrives: bool = True
    """The request arrives even if its sender dies meanwhile."""


class FaultPlan:
    """Draws the fate of requests; `calm` ends all misfortune."""

    def __init__(self, scenario: Scenario, rng: Random) -> None:
        self._scenario = scenario
        self._rng = rng
        self.calm = False

    def fate(self, operation: str) -> Fate:
        rng, rates = self._rng, self._scenario
        there, back = rng.random() * _USUAL_S, rng.random() * _USUAL_S
        draw, orphan, slow = rng.random(), rng.random() < 0.5, rng.random()
        if self.calm:
            return Fate(there, back)
        if slow < rates.slow:
            there += rng.random() * _SLOW_S
        elif slow < 2 * rates.slow:
            back += rng.random() * _SLOW_S
        lost = draw < rates.fail
        unanswered = not lost and draw < rates.fail + rates.lose_answer
        twice = operation in _WRITES and 1 - draw < rates.twice
        again = rng.random() * _NOTICED_S if twice else None
        return Fate(there, back, lost, unanswered, again, orphan)


class Truth(MemoryStore):
    """What one store holds, however requests get there."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.vanished = False

    def objects(self) -> dict[str, bytes]:
        return dict(self._objects)

    def vanish(self) -> None:
        """Lose all objects; what arrives later finds nothing to write to."""
        self._objects.clear()
        self._names.clear()
        self.vanished = True

    def _store(self, name: str, data: bytes) -> None:
        if self.vanished:
            raise store_unreachable(object_at(self.url, name), "no such store (simulated)")
        super()._store(name, data)


@dataclass(slots=True)
class Network:
    """The ways to a store."""

    truth: Truth
    faults: FaultPlan
    trace: Trace
    watcher: Watcher
    requests: int = 0


class StoreClient(ForwardingStore):
    """The store as one process reaches it."""

    def __init__(self, network: Network, process: Process) -> None:
        super().__init__(network.truth)
        self._network = network
        self._process = process

    async def _call(self, operation: str, name: str, effect: Callable[[], Awaitable[T]]) -> T:
        self._process.check_alive()
        network = self._network
        network.requests += 1
        fate = network.faults.fate(operation)
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        _Request(network, self._process, operation, name, effect, fate, answer).depart()
        return await answer


@dataclass(slots=True)
class _Request:
    network: Network
    process: Process
    operation: str
    name: str
    effect: Callable[[], Awaitable[Any]]
    fate: Fate
    answer: "asyncio.Future[Any]"

    def depart(self) -> None:
        fate, now = self.fate, asyncio.get_running_loop().time()
        # Cut off: the request waits in some queue and comes through with the line.
        delay = max(fate.there, self.process.cut_off_until + fate.there - now)
        if fate.lost:
            _later(min(delay, _NOTICED_S), self._fail, "lost")
            return
        _later(delay, self._arrive, fate.again is None)
        if fate.again is not None:
            _later(delay + fate.again, self._arrive, True)

    def _arrive(self, answers: bool) -> None:
        if self.process.dead and not self.fate.orphan_arrives:
            return
        settle: Callable[[Any], None]
        try:
            settle, outcome = self.answer.set_result, _immediate(self.effect())
        except TidelogError as error:
            settle, outcome = self.answer.set_exception, error
            self._log(type(error).__name__)
        else:
            self._log("ok")
            if self.operation == "delete":
                self.network.watcher.deleted(self.process, self.name)
            elif self.operation in _WRITES:
                self.network.watcher.written(self.process, self.name)
        if not answers or self.answer.done():
            return
        if not self.fate.unanswered:
            _later(self.fate.back, self._settle, settle, outcome)
            return
        _later(_NOTICED_S, self._fail, "unanswered")
        if self.operation == "create":
            self.process.in_doubt.set()

    def _settle(self, settle: Callable[[Any], None], outcome: Any) -> None:
        if not self.answer.done():
            settle(outcome)

    def _fail(self, how: str) -> None:
        if not self.answer.done():
            self._log(how)
            what = object_at(self.network.truth.url, self.name)
            found = f"{self.operation} was {how} (simulated)"
            self.answer.set_exception(store_unreachable(what, found))

    def _log(self, outcome: str) -> None:
        line = f"{self.operation} {_stable(self.name)} {outcome}"
        self.network.trace.add(self.process.name, line)


def _later(seconds: float, happens: Callable[..., None], *args: Any) -> None:
    """What is on its way does not stand still with its sender."""
    asyncio.get_running_loop().call_later(seconds, happens, *args, context=Context())


def _immediate(answer: Awaitable[T]) -> T:
    """The answer of a coroutine that never waits."""
    try:
        answer.__await__().send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise AssertionError("a call of the memory store waited")


def _stable(name: str) -> str:
    """A name without the digest of contents that differ from run to run (RocksDB's files)."""
    folder, _, leaf = name.rpartition("/")
    return f"{folder}/*-{leaf.partition('-')[2]}" if name.startswith("tables/") else name
