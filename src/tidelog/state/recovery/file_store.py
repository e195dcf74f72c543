"""The store of files that arrive, in the event loop of the job and in one aside.

The event loop of a program stands still while the program reads, so files arrive in the loop aside.
"""

import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from tidelog.effects import Aside, Effects, Offload
from tidelog.errors import StoreUnreachableError
from tidelog.events import Event
from tidelog.storage.port import ObjectStore

logger = logging.getLogger(__name__)

_RETRY_PAUSE_S: Final = 1.0

T = TypeVar("T")
Work = Callable[[ObjectStore, Offload], Coroutine[Any, Any, T]]


@dataclass(slots=True)
class FileStore:
    """A store, and what waits for it."""

    store: ObjectStore
    effects: Effects
    _aside: Aside = field(init=False)
    _apart: ObjectStore | None = None
    """The store for the event loop aside; None until it is needed."""
    _is_away: bool = False
    """The store has not answered last."""

    def __post_init__(self) -> None:
        self._aside = self.effects.aside(self.effects)

    async def go_aside(self, work: Work[T]) -> T:
        """What `work` returns or raises in the event loop aside."""
        return await self._aside.go(lambda effects: self._do(work, effects))

    def wait_for(self, work: Work[T], seconds: float) -> T:
        """The same, while the calling thread waits; raises TimeoutError after so long."""
        effects = self._aside.effects
        return self._aside.run(lambda: self._do(work, effects), seconds)

    async def _do(self, work: Work[T], effects: Effects) -> T:
        if effects is self.effects:
            return await work(self.store, effects.offload)
        if self._apart is None:
            self._apart = self.store.apart(effects)
        return await work(self._apart, effects.offload)

    async def patiently(self, read: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Read from the store, again and again while it does not answer."""
        while True:
            try:
                answer = await read()
            except StoreUnreachableError as error:
                if not self._is_away:
                    Event.TABLES_WAIT.log(logger, error=error)
                self._is_away = True
            else:
                self._is_away = False
                return answer
            await self.effects.clock.sleep(_RETRY_PAUSE_S)

    def close(self) -> None:
        """Where requests were sent from the event loop aside, their connections end there."""
        self._aside.close(self._apart.close if self._apart is not None else None)
