"""Stores that fail on demand, around any other store.

Invariants: a call fails exactly as planned, by its operation, name, occurrence or seeded draw,
never by accident; a failure before the effect leaves the inner store untouched, one after it
leaves the effect in place, as a lost answer does.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import TypeVar

from tidelog.effects import Clock, Effects, SystemClock
from tidelog.errors import StorageError
from tidelog.storage.errors import object_at, store_unreachable
from tidelog.storage.port import ObjectInfo, ObjectPart, ObjectStore, get_each

T = TypeVar("T")


class FaultKind(Enum):
    """What happens to a call."""

    FAIL = "fail"
    DELAY = "delay"
    STALL = "stall"
    DUPLICATE = "duplicate"
    """The request reaches the store twice; the caller gets the second answer."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One rule: which calls it strikes and how.

    Of the calls whose operation (any when None) and name prefix match, it strikes the `nth`
    (from 1; every one when None). With `after` it strikes between the effect and the answer instead
    of before both. `seconds` is the length of a DELAY; a STALL lasts until
    `FaultyStore.release`. `error` builds what a FAIL raises.
    """

    kind: FaultKind
    operation: str | None = None
    prefix: str = ""
    nth: int | None = None
    after: bool = False
    seconds: float = 0.0
    error: Callable[[str, str], StorageError] = store_unreachable


Failure = partial(Fault, FaultKind.FAIL, nth=1)
"""A call that fails once."""


class ForwardingStore:
    """Any store, with `_call` around each request to it."""

    def __init__(self, inner: ObjectStore) -> None:
        self.url = inner.url
        self.request_metrics = inner.request_metrics
        self.cipher = inner.cipher
        self.inner = inner

    def apart(self, effects: Effects) -> ObjectStore:
        """Itself: what it forwards to answers in any event loop."""
        return self

    async def put(self, name: str, data: bytes) -> None:
        await self._call("put", name, partial(self.inner.put, name, data))

    async def create(self, name: str, data: bytes) -> None:
        await self._call("create", name, partial(self.inner.create, name, data))

    async def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        return await self._call("get", name, partial(self.inner.get, name, start, length))

    async def get_parts(
        self, parts: Sequence[ObjectPart], patience_s: float | None = None
    ) -> Sequence[bytes | None]:
        return await get_each(self, parts, patience_s)

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        """Names in ascending order, all of them read at once."""

        async def effect() -> Sequence[ObjectInfo]:
            return [info async for info in self.inner.list(prefix, start_after)]

        for info in await self._call("list", prefix, effect):
            yield info

    async def head(self, name: str) -> ObjectInfo:
        return await self._call("head", name, partial(self.inner.head, name))

    async def delete(self, name: str) -> None:
        await self._call("delete", name, partial(self.inner.delete, name))

    async def close(self) -> None:
        await self.inner.close()

    async def _call(self, operation: str, name: str, effect: Callable[[], Awaitable[T]]) -> T:
        return await effect()


class FaultyStore(ForwardingStore):
    """Any store with `faults`, applied in their order.

    `calls` has operation and name of each call; `stalled` counts those that hang at present.
    """

    def __init__(self, inner: ObjectStore, faults: Iterable[Fault], clock: Clock) -> None:
        super().__init__(inner)
        self.calls: list[tuple[str, str]] = []
        self.stalled = 0
        self.faults = tuple(faults)
        self._matches: Counter[int] = Counter()
        self._clock = clock
        self._gate = asyncio.Event()

    def release(self) -> None:
        """Let the calls that hang go on; later ones stall again."""
        self._gate.set()
        self._gate = asyncio.Event()

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        """Names in ascending order; a fault after the effect strikes behind the last name."""
        struck = self._strike("list", prefix)
        await self._suffer(struck, "list", prefix, after=False)
        async for info in self.inner.list(prefix, start_after):
            yield info
        await self._suffer(struck, "list", prefix, after=True)

    async def _call(self, operation: str, name: str, effect: Callable[[], Awaitable[T]]) -> T:
        struck = self._strike(operation, name)
        await self._suffer(struck, operation, name, after=False)
        answer = await effect()
        for fault in struck:
            if fault.kind is FaultKind.DUPLICATE:
                answer = await effect()
        await self._suffer(struck, operation, name, after=True)
        return answer

    def _strike(self, operation: str, name: str) -> Sequence[Fault]:
        self.calls.append((operation, name))
        struck = []
        for index, fault in enumerate(self.faults):
            if fault.operation not in (None, operation) or not name.startswith(fault.prefix):
                continue
            self._matches[index] += 1
            if fault.nth in (None, self._matches[index]):
                struck.append(fault)
        return struck

    async def _suffer(
        self, struck: Iterable[Fault], operation: str, name: str, *, after: bool
    ) -> None:
        for fault in struck:
            if fault.after is not after:
                continue
            if fault.kind is FaultKind.DELAY:
                await self._clock.sleep(fault.seconds)
            elif fault.kind is FaultKind.STALL:
                await self._stall()
            elif fault.kind is FaultKind.FAIL:
                side = "after" if after else "before"
                found = f"an injected failure {side} the effect of {operation}"
                raise fault.error(object_at(self.url, name), found)

    async def _stall(self) -> None:
        self.stalled += 1
        try:
            await self._gate.wait()
        finally:
            self.stalled -= 1


class SteerableStore(FaultyStore):
    """Any store, with failures and stalls that are switched on and off between calls."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner, (), SystemClock())
        self.held: dict[str, asyncio.Event] = {}
        self.waiting = 0

    def fail(self, *failures: Fault) -> None:
        """From now on only these failures strike."""
        self.faults = failures
        self._matches.clear()

    def hold(self, prefix: str) -> None:
        """Writes of names with this prefix hang until `release`."""
        self.held.setdefault(prefix, asyncio.Event())

    def release(self) -> None:
        super().release()
        for event in self.held.values():
            event.set()
        self.held = {}

    async def _call(self, operation: str, name: str, effect: Callable[[], Awaitable[T]]) -> T:
        for prefix, event in list(self.held.items()):
            if operation in ("put", "create") and name.startswith(prefix):
                self.waiting += 1
                try:
                    await event.wait()
                finally:
                    self.waiting -= 1
        return await super()._call(operation, name, effect)
