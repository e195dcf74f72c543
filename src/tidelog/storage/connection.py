"""The connection of a store to its server, which all of its requests share.

Invariants: it is made with the first request, once, however many come together; after `close` none
is made any more.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from tidelog.storage import errors

T = TypeVar("T")


class Connection(Generic[T]):
    """A connection of the store at `url`, made by `connect` and ended by `disconnect`."""

    def __init__(
        self,
        url: str,
        connect: Callable[[], Awaitable[T]],
        disconnect: Callable[[T], Awaitable[None]],
    ) -> None:
        self._url = url
        self._connect = connect
        self._disconnect = disconnect
        self._made: T | None = None
        self._is_closed = False
        # One at a time: of two that a library makes at once it forgets one.
        self._making = asyncio.Lock()

    async def get(self) -> T:
        """The connection; raises StorageError after `close`, and what `connect` raises."""
        async with self._making:
            if self._is_closed:
                raise errors.closed(self._url)
            if self._made is None:
                self._made = await self._connect()
            return self._made

    async def close(self) -> None:
        """End the connection, if there is one."""
        self._is_closed = True
        async with self._making:
            made, self._made = self._made, None
        if made is not None:
            await self._disconnect(made)
