"""A store whose next calls fail or hang as a test decides while it runs."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from tidelog.storage.errors import object_at, store_unreachable
from tidelog.storage.port import ObjectInfo, ObjectStore

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Failure:
    """Strikes the `nth` (from 1) call of `operation` on names with `prefix`."""

    operation: str
    prefix: str = ""
    after: bool = False
    """Fail behind the effect, as a lost answer does."""
    nth: int = 1


class SteerableStore:
    """Any store, with failures and stalls that are switched on and off between calls."""

    def __init__(self, inner: ObjectStore) -> None:
        self.url = inner.url
        self.request_metrics = inner.request_metrics
        self.cipher = inner.cipher
        self.inner = inner
        self.failures: list[Failure] = []
        self.calls: list[tuple[str, str]] = []
        self.held: dict[str, asyncio.Event] = {}
        self.waiting = 0
        self._seen: dict[int, int] = {}

    def fail(self, *failures: Failure) -> None:
        """From now on only these failures strike, each once."""
        self.failures = list(failures)
        self._seen = {}

    def hold(self, prefix: str) -> None:
        """Writes of names with this prefix hang until `release`."""
        self.held.setdefault(prefix, asyncio.Event())

    def release(self) -> None:
        """Let all writes go on."""
        for event in self.held.values():
            event.set()
        self.held = {}

    async def put(self, name: str, data: bytes) -> None:
        await self._call("put", name, partial(self.inner.put, name, data))

    async def create(self, name: str, data: bytes) -> None:
        await self._call("create", name, partial(self.inner.create, name, data))

    async def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        return await self._call("get", name, partial(self.inner.get, name, start, length))

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        failure = self._strike("list", prefix)
        self._raise(failure, "list", prefix, after=False)
        async for info in self.inner.list(prefix, start_after):
            yield info
        self._raise(failure, "list", prefix, after=True)

    async def head(self, name: str) -> ObjectInfo:
        return await self._call("head", name, partial(self.inner.head, name))

    async def delete(self, name: str) -> None:
        await self._call("delete", name, partial(self.inner.delete, name))

    async def close(self) -> None:
        await self.inner.close()

    async def _call(self, operation: str, name: str, effect: Callable[[], Awaitable[T]]) -> T:
        failure = self._strike(operation, name)
        for prefix, event in list(self.held.items()):
            if operation in ("put", "create") and name.startswith(prefix):
                self.waiting += 1
                try:
                    await event.wait()
                finally:
                    self.waiting -= 1
        self._raise(failure, operation, name, after=False)
        answer = await effect()
        self._raise(failure, operation, name, after=True)
        return answer

    def _strike(self, operation: str, name: str) -> Failure | None:
        self.calls.append((operation, name))
        for number, failure in enumerate(self.failures):
            if failure.operation == operation and name.startswith(failure.prefix):
                self._seen[number] = self._seen.get(number, 0) + 1
                if self._seen[number] == failure.nth:
                    return failure
        return None

    def _raise(self, failure: Failure | None, operation: str, name: str, *, after: bool) -> None:
        if failure is not None and failure.after is after:
            side = "after" if after else "before"
            found = f"an injected failure {side} the effect of {operation}"
            raise store_unreachable(object_at(self.url, name), found)
