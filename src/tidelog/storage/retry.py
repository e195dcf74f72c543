"""Retries, deadlines and hedged second attempts around any store.

Invariants: only StoreUnreachableError is retried; no call outlives its deadline; `create` never
has two attempts under way at once, because the loser of such a race would report "exists" for
our own object. A create that is retried after a lost answer can still report it:
`create_once` resolves that by reading back.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import Final, TypeVar

import msgspec

from tidelog.effects import Effects
from tidelog.errors import (
    ObjectExistsError,
    ObjectNotFoundError,
    StoreUnreachableError,
    TidelogError,
)
from tidelog.events import Event
from tidelog.options.units import plural
from tidelog.storage import object_names
from tidelog.storage.errors import object_at, store_unreachable
from tidelog.storage.hedge import first_answer
from tidelog.storage.port import (
    ObjectInfo,
    ObjectPart,
    ObjectStore,
    OperationMetrics,
    RequestMetrics,
)
from tidelog.storage.retry_policy import RetryPolicy

logger = logging.getLogger(__name__)

T = TypeVar("T")

_LIST_PAGE: Final = 10_000


class _Request(msgspec.Struct, frozen=True):
    """One call: its counters, an object, its size in bytes, whether it may be hedged, and what it
    counts for.
    """

    counters: OperationMetrics
    name: str
    size: int = 0
    hedged: bool = True
    count: int = 1


class RetryingStore:
    """A store whose calls are retried until they are answered or their deadline passes.

    Every call raises StoreUnreachableError after its deadline, and at once whatever else the
    inner store raises.
    """

    def __init__(
        self,
        inner: ObjectStore,
        policy: RetryPolicy,
        effects: Effects,
        metrics: RequestMetrics | None = None,
    ) -> None:
        self.url = inner.url
        self.cipher = inner.cipher
        self.request_metrics = metrics or RequestMetrics()
        self._inner = inner
        self._policy = policy
        self._effects = effects

    async def put(self, name: str, data: bytes) -> None:
        """Write or overwrite `name`.

        An attempt that was given up can still arrive later: put other bytes under the same name
        only where that does no harm.
        """
        metrics, attempts = self.request_metrics, 0
        request = _Request(metrics.put, name, len(data))

        def send() -> Awaitable[None]:
            nonlocal attempts
            attempts += 1
            return self._inner.put(name, data)

        try:
            await self._call(request, send)
        finally:
            if name.startswith(object_names.SEGMENTS):
                metrics.segment_attempts += attempts
                metrics.attempts_per_segment.append(attempts)
        metrics.bytes_written += len(data)

    async def create(self, name: str, data: bytes) -> None:
        """Write `name` if it is absent; raises ObjectExistsError, possibly for our own object."""
        request = _Request(self.request_metrics.create, name, len(data), hedged=False)
        await self._call(request, partial(self._inner.create, name, data))
        self.request_metrics.bytes_written += len(data)

    async def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        request = _Request(self.request_metrics.get, name, length or 0)
        data = await self._call(request, partial(self._inner.get, name, start, length))
        self.request_metrics.bytes_read += len(data)
        return data

    async def get_parts(
        self, parts: Sequence[ObjectPart], patience_s: float | None = None
    ) -> Sequence[bytes | None]:
        """All of them again, if one is not answered."""
        size = sum([part.length for part in parts])
        request = _Request(self.request_metrics.get, parts[0].name, size, count=len(parts))
        contents = await self._call(request, partial(self._inner.get_parts, parts, patience_s))
        self.request_metrics.bytes_read += sum(
            [len(content) for content in contents if content is not None]
        )
        return contents

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        """Names in ascending order, fetched and retried page by page."""
        request = _Request(self.request_metrics.list, f"{prefix}*")
        while True:
            page = await self._call(request, partial(self._page, prefix, start_after))
            for info in page:
                yield info
            if len(page) < _LIST_PAGE:
                return
            start_after = page[-1].name

    async def head(self, name: str) -> ObjectInfo:
        request = _Request(self.request_metrics.head, name)
        return await self._call(request, partial(self._inner.head, name))

    async def delete(self, name: str) -> None:
        request = _Request(self.request_metrics.delete, name)
        await self._call(request, partial(self._inner.delete, name))

    def apart(self, effects: Effects) -> "RetryingStore":
        inner = self._inner.apart(effects)
        return RetryingStore(inner, self._policy, effects, self.request_metrics)

    async def close(self) -> None:
        await self._inner.close()

    async def _page(self, prefix: str, start_after: str) -> tuple[ObjectInfo, ...]:
        page: list[ObjectInfo] = []
        async for info in self._inner.list(prefix, start_after):
            page.append(info)
            if len(page) == _LIST_PAGE:
                break
        return tuple(page)

    async def _call(self, request: _Request, send: Callable[[], Awaitable[T]]) -> T:
        counters, clock = request.counters, self._effects.clock
        counters.calls += request.count
        started = clock.monotonic()
        try:
            return await self._until_answered(request, send, started)
        except (ObjectNotFoundError, ObjectExistsError):
            raise
        except TidelogError:
            counters.failures += request.count
            raise
        finally:
            seconds = clock.monotonic() - started
            counters.seconds += seconds
            counters.latency_s.append(seconds)

    async def _until_answered(
        self, request: _Request, send: Callable[[], Awaitable[T]], started: float
    ) -> T:
        policy, clock = self._policy, self._effects.clock
        transfer_s = request.size / policy.bytes_per_s
        deadline = started + policy.deadline + transfer_s
        retry = 0
        while True:
            left_s = deadline - clock.monotonic()
            try:
                return await self._attempt(request, send, transfer_s, left_s)
            except StoreUnreachableError as error:
                pause = policy.backoff_s(retry, self._effects.rng.random())
                last = retry + 1 == policy.attempts
                if last or clock.monotonic() + pause >= deadline:
                    Event.REQUEST_GIVEN_UP.log(
                        logger, object=request.name, attempts=retry + 1, error=error.found
                    )
                    actual = (
                        f"{plural(retry + 1, 'attempt')} without an answer, the last: {error.found}"
                    )
                    what = object_at(self.url, request.name)
                    raise store_unreachable(what, actual) from error
                Event.REQUEST_RETRIED.log(
                    logger, object=request.name, attempt=retry + 2, pause_s=pause, error=error.found
                )
            await clock.sleep(pause)
            retry += 1
            request.counters.retries += request.count

    async def _attempt(
        self, request: _Request, send: Callable[[], Awaitable[T]], transfer_s: float, left_s: float
    ) -> T:
        policy = self._policy
        hedge_s = policy.hedge_after if request.hedged else None
        timeout_s = max(0.0, min(policy.attempt_timeout + transfer_s, left_s))
        try:
            return await first_answer(
                self._effects.clock,
                send,
                request.counters,
                request.name,
                count=request.count,
                timeout_s=timeout_s,
                hedge_after_s=None if hedge_s is None else hedge_s + transfer_s,
            )
        except TimeoutError:
            what = object_at(self.url, request.name)
            raise store_unreachable(what, f"silence for {timeout_s:.1f} s") from None
