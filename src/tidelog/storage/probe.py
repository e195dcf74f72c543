"""What `tidelog store check` asks of a store before a job relies on it.

Invariants: every object lies under `probe/<token>/` and is deleted by its name at the end,
whatever failed; a check that raises is a check that failed; nothing is printed.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from statistics import median
from typing import Any, Final, TypeVar

from tidelog.concurrency import together
from tidelog.effects import Effects
from tidelog.errors import ObjectExistsError, ObjectNotFoundError, TidelogError
from tidelog.storage import object_names
from tidelog.storage.port import ObjectStore, create_once


@dataclass(frozen=True, slots=True)
class Check:
    """One question and its answer; `message` says what was found."""

    name: str
    passed: bool
    message: str


@dataclass(frozen=True, slots=True)
class Latency:
    """How long calls of one operation took, in milliseconds."""

    operation: str
    calls: int
    min_ms: float
    median_ms: float
    max_ms: float


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """How fast the bytes of large objects went to the store or came back, some at a time."""

    operation: str
    objects: int
    bytes: int
    bytes_per_s: float


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """The answers in the order they were asked."""

    url: str
    checks: tuple[Check, ...]
    latencies: tuple[Latency, ...]
    bandwidths: tuple[Bandwidth, ...] = ()

    @property
    def passed(self) -> bool:
        """True when every check did."""
        return all(check.passed for check in self.checks)


T = TypeVar("T")

_SAMPLES: Final = 5
_LARGE: Final = 4
"""Large objects that go at a time, as uploads of table files do."""
_LARGE_BYTES: Final = 8 << 20
"""As the files of a table are."""


async def probe_store(
    stores: Sequence[ObjectStore], effects: Effects, *, racers: int = 16, rounds: int = 5
) -> ProbeReport:
    """Probe one store through several connections: `stores` are openings of the same URL.

    Each of `rounds` races has `racers` writers, spread over the connections. Raises nothing of
    `tidelog.errors`: failures are in the report. When the store cannot even be written to and
    read, the other checks are left out.
    """
    probe = _Probe(stores, effects, racers, rounds)
    try:
        if await probe.check("reach", probe.reach):
            await probe.check("read after write", probe.read_after_write)
            await probe.check("refuse overwrite", probe.refuse_overwrite)
            await probe.check("create race", probe.race)
            await probe.check("list", probe.list_in_order)
            await probe.check("large objects", probe.move_large)
    finally:
        await probe.check("clean up", probe.clean_up)
    return ProbeReport(
        stores[0].url, tuple(probe.checks), probe.latencies(), tuple(probe.bandwidths)
    )


class _CheckFailedError(Exception):
    """The store answered, but not as it must."""


def _demand(holds: bool, message: str) -> None:
    if not holds:
        raise _CheckFailedError(message)


@dataclass
class _Probe:
    stores: Sequence[ObjectStore]
    effects: Effects
    racers: int
    rounds: int
    checks: list[Check] = field(default_factory=list)
    bandwidths: list[Bandwidth] = field(default_factory=list)
    _names: list[str] = field(default_factory=list)
    _milliseconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        self._token = self.effects.token()

    async def check(self, name: str, ask: Callable[[], Awaitable[str]]) -> bool:
        """Ask, and record the answer."""
        try:
            self.checks.append(Check(name, True, await ask()))
        except (TidelogError, _CheckFailedError) as error:
            self.checks.append(Check(name, False, str(error)))
        return self.checks[-1].passed

    def latencies(self) -> tuple[Latency, ...]:
        """Summary of the calls made one at a time; races are not in it."""
        return tuple(
            Latency(operation, len(ms), min(ms), median(ms), max(ms))
            for operation, ms in self._milliseconds.items()
        )

    async def reach(self) -> str:
        store, name = self.stores[0], self._name("reach")
        await self._timed("put", store.put(name, b"reach"))
        await self._timed("get", store.get(name))
        return "the store can be written to and read"

    async def read_after_write(self) -> str:
        store, other, name = self.stores[0], self.stores[-1], self._name("read")
        for sample in range(_SAMPLES):
            data = f"{self._token} {sample}".encode()
            await self._timed("put", store.put(name, data))
            _demand(
                await self._timed("get", other.get(name)) == data,
                "a read returned something else than the write before it",
            )
            info = await self._timed("head", other.head(name))
            _demand(info.size == len(data), f"a size of {info.size}, written were {len(data)}")
            _demand(await store.get(name, 1, 3) == data[1:4], "a ranged read returned other bytes")
        await self._timed("delete", store.delete(name))
        try:
            await other.get(name)
        except ObjectNotFoundError:
            return "reads see the write or delete before them, across connections"
        raise _CheckFailedError("a deleted object can still be read")

    async def refuse_overwrite(self) -> str:
        store = self.stores[0]
        for sample in range(_SAMPLES):
            name = self._name(f"once-{sample}")
            await self._timed("create", store.create(name, b"first"))
            try:
                await self.stores[-1].create(name, b"second")
            except ObjectExistsError:
                _demand(await store.get(name) == b"first", "a refused create changed the object")
            else:
                raise _CheckFailedError(
                    "a create overwrote an object: the store ignores If-None-Match and cannot fence"
                )
        return "a create never overwrites"

    async def race(self) -> str:
        for round_ in range(self.rounds):
            name = self._name(f"race-{round_}")
            authors = [f"{self._token} racer {racer}".encode() for racer in range(self.racers)]
            winners = await self._race(name, authors)
            _demand(
                len(winners) == 1,
                f"{len(winners)} of {self.racers} racing creates of one name won; exactly one must",
            )
            _demand(await self.stores[0].get(name) == winners[0], "the winner's object was changed")
        return f"one winner in each of {self.rounds} races of {self.racers}"

    async def list_in_order(self) -> str:
        store = self.stores[0]
        # Shuffled on purpose, and with a neighbour on either side of "/" in byte order.
        names = [self._name(f"list/{leaf}") for leaf in ("b", "a/2", "a-1", "a0", "a/1")]
        for name in names:
            await store.put(name, b"listed")
        expected = sorted(names)
        prefix = object_names.probe(self._token, "list/")
        listed = await self._timed("list", self._list(prefix))
        _demand(listed == expected, f"a listing of {listed} where {expected} was expected")
        rest = await self._timed("list", self._list(prefix, expected[1]))
        _demand(rest == expected[2:], f"a listing after {expected[1]} that returned {rest}")
        return "listings are complete, in byte order, and start after the given name"

    async def move_large(self) -> str:
        store, data = self.stores[0], self.effects.rng.randbytes(_LARGE_BYTES)
        names = [self._name(f"large-{number}") for number in range(_LARGE)]
        await self._moved("put", [store.put(name, data) for name in names])
        read = await self._moved("get", [store.get(name) for name in names])
        _demand(all(each == data for each in read), "a read of a large object was not as written")
        return f"{_LARGE} objects of {_LARGE_BYTES >> 20} MiB at a time are read as written"

    async def _moved(self, operation: str, calls: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
        clock = self.effects.clock
        started, size = clock.monotonic(), len(calls) * _LARGE_BYTES
        answers = await together(calls)
        seconds = max(clock.monotonic() - started, 1e-6)
        self.bandwidths.append(Bandwidth(operation, len(calls), size, size / seconds))
        return answers

    async def clean_up(self) -> str:
        for name in self._names:
            await self._timed("delete", self.stores[0].delete(name))
        return f"{len(self._names)} probe objects deleted"

    async def _race(self, name: str, authors: Sequence[bytes]) -> list[bytes]:
        lanes = cycle(self.stores)
        outcomes = await asyncio.gather(
            *(create_once(next(lanes), name, author) for author in authors),
            return_exceptions=True,  # every racer has stopped before anything is judged
        )
        for outcome in outcomes:
            if outcome is not None and not isinstance(outcome, ObjectExistsError):
                raise outcome
        return [author for author, lost in zip(authors, outcomes, strict=True) if lost is None]

    async def _list(self, prefix: str, start_after: str = "") -> list[str]:
        return [info.name async for info in self.stores[0].list(prefix, start_after)]

    def _name(self, leaf: str) -> str:
        name = object_names.probe(self._token, leaf)
        self._names.append(name)
        return name

    async def _timed(self, operation: str, call: Awaitable[T]) -> T:
        clock = self.effects.clock
        started = clock.monotonic()
        answer = await call
        self._milliseconds[operation].append((clock.monotonic() - started) * 1000)
        return answer
