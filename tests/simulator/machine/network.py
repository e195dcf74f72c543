"""The way to the store: requests that are lost, slow, doubled, overtaken or orphaned.

Invariants: a request takes effect at one moment, all or nothing, and at most as often as it was
sent; the store itself is strongly consistent, as S3 is; a sender hears of an effect only after
it; what a dead sender has sent may still arrive.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
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
from tidelog.storage.object_names import TABLES

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


@dataclass(slots=True)
class Weather:
    """What becomes of requests; `calm` ends all misfortune."""

    scenario: Scenario
    rng: Random
    calm: bool = False


class Truth(MemoryStore):
    """What one store holds, however requests get there."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.vanished = False
        self.lost: set[str] = set()
        """Objects that were there and that nobody of the job has deleted."""

    def lose(self, names: Iterable[str]) -> None:
        for name in names:
            del self._objects[name]
            self._names.remove(name)
            self.lost.add(name)

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
    truth: Truth
    weather: Weather
    trace: Trace
    watcher: Watcher
    requests: int = 0


class StoreClient(ForwardingStore):
    """The store as one process reaches it."""

    def __init__(self, network: Network, process: Process) -> None:
        super().__init__(network.truth)
        self._network = network
        self._process = process

    async def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        weather, rng = self._network.weather, self._process.rng
        if self._process.file_s and start == 0 and name.startswith(TABLES) and not weather.calm:
            await self._until_it_arrives(name)
        data = await super().get(name, start, length)
        rate = 0.0 if weather.calm or not name.startswith(TABLES) else weather.scenario.damages
        if not rate or not data or rng.random() >= rate:
            return data
        self._process.damaged = True
        self._network.trace.add(self._process.name, "a bit of it is changed")
        position = rng.randrange(len(data))
        changed = bytes((data[position] ^ 1 << rng.randrange(8),))
        return data[:position] + changed + data[position + 1 :]

    async def _until_it_arrives(self, name: str) -> None:
        """Raise StoreUnreachableError where the whole of a file does not arrive yet."""
        process, now = self._process, asyncio.get_running_loop().time()
        arrives = process.arrivals.setdefault(name, now + process.rng.random() * process.file_s)
        if now < arrives:
            await asyncio.sleep(_NOTICED_S)
            what = object_at(self._network.truth.url, name)
            raise store_unreachable(what, "it has not arrived yet (simulated)")

    async def _call(self, operation: str, name: str, effect: Callable[[], Awaitable[T]]) -> T:
        self._process.check_alive()
        self._network.requests += 1
        answer: T = await _Request(self._network, self._process, operation, name, effect).answer
        return answer


class _Request:
    """One request, whose fate is drawn as it departs."""

    def __init__(
        self,
        network: Network,
        process: Process,
        operation: str,
        name: str,
        effect: Callable[[], Awaitable[Any]],
    ) -> None:
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._network = network
        self._process = process
        self._operation = operation
        self._name = name
        self._effect = effect
        rng, calm = network.weather.rng, network.weather.calm
        rate = 0.0 if calm else network.weather.scenario.requests
        there, self._back = rng.random() * _USUAL_S, rng.random() * _USUAL_S
        draw, slow = rng.random(), rng.random()
        self._orphan_arrives = rng.random() < 0.5 or calm
        """The request arrives even if its sender dies meanwhile."""
        if slow < rate:
            there += rng.random() * _SLOW_S
        elif slow < 2 * rate:
            self._back += rng.random() * _SLOW_S
        self._unanswered = rate <= draw < 2 * rate
        # Cut off: the request waits in some queue and comes through with the line.
        now = asyncio.get_running_loop().time()
        delay = max(there, process.cut_off_until + there - now)
        twice = operation in _WRITES and 1 - draw < rate
        if draw < rate:
            _later(min(delay, _NOTICED_S), self._fail, "lost")
            return
        _later(delay, self._arrive, not twice)
        if twice:
            _later(delay + rng.random() * _NOTICED_S, self._arrive, True)

    def _arrive(self, answers: bool) -> None:
        if self._process.dead and not self._orphan_arrives:
            return
        settle: Callable[[Any], None]
        try:
            settle, outcome = self.answer.set_result, _immediate(self._effect())
        except TidelogError as error:
            settle, outcome = self.answer.set_exception, error
            self._log(type(error).__name__)
        else:
            self._log("ok")
            if self._operation == "delete":
                self._network.watcher.deleted(self._process, self._name)
            elif self._operation in _WRITES:
                self._network.watcher.written(self._process, self._name)
        if not answers or self.answer.done():
            return
        if not self._unanswered:
            _later(self._back, self._settle, settle, outcome)
            return
        _later(_NOTICED_S, self._fail, "unanswered")
        if self._operation == "create":
            self._process.in_doubt.set()

    def _settle(self, settle: Callable[[Any], None], outcome: Any) -> None:
        if not self.answer.done():
            settle(outcome)

    def _fail(self, how: str) -> None:
        if not self.answer.done():
            self._log(how)
            what = object_at(self._network.truth.url, self._name)
            found = f"{self._operation} was {how} (simulated)"
            self.answer.set_exception(store_unreachable(what, found))

    def _log(self, outcome: str) -> None:
        line = f"{self._operation} {_stable(self._name)} {outcome}"
        self._network.trace.add(self._process.name, line)


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
