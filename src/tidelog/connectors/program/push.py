"""Sources that push: a client library calls tidelog when it has records.

Invariants: a buffer is taken over only when the task has room for its output, so the pusher is
held back like everyone else; its position is stored together with its records; what
was pushed but not taken over is pushed again after a restart.
"""

import asyncio
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from tidelog.runtime.operators.distinct import Distinct
from tidelog.runtime.source import Source, SplitReader


class Emitter:
    """Takes what a source pushes; one per split, used in the event loop."""

    def __init__(self) -> None:
        self._offered: deque[tuple[list[Any], Any, asyncio.Future[None]]] = deque()
        self._listener: Callable[[], None] = _nobody
        self._distinct = Distinct()

    async def emit(self, records: Iterable[Any], position: Any) -> None:
        """Push records; returns when the task has taken them over, not before it had room.

        `position` (of any type that state keeps) is where the split goes on behind them.
        """
        records = list(records)
        self._distinct.check(records)
        taken = asyncio.get_running_loop().create_future()
        self._offered.append((records, position, taken))
        self._listener()
        await taken

    def notify(self, listener: Callable[[], None]) -> None:
        """Call this when something was offered."""
        self._listener = listener

    def take(self) -> tuple[list[Any], Any] | None:
        """What was offered first."""
        if not self._offered:
            return None
        records, position, taken = self._offered.popleft()
        if not taken.done():
            taken.set_result(None)
        return records, position


class PushSource(Source):
    """Subclasses say what splits there are and push the records of each."""

    @abstractmethod
    async def push(self, split: str, position: Any, emitter: Emitter) -> None:
        """Push a split's records behind a position (None: all) with `emitter.emit`.

        Returning ends the split; an exception stops the job. Runs in the job's event loop: wait,
        never block. Threads of a client library hand over with
        `asyncio.run_coroutine_threadsafe(emitter.emit(...), loop).result()`.
        """

    def open(self, split: str, position: Any) -> SplitReader:
        return _PushReader(self, split, position)


class _PushReader(SplitReader):
    def __init__(self, source: PushSource, split: str, position: Any) -> None:
        self.position = position
        self._emitter = Emitter()
        self._pushing = asyncio.ensure_future(source.push(split, position, self._emitter))

    def notify(self, listener: Callable[[], None]) -> None:
        self._emitter.notify(listener)
        self._pushing.add_done_callback(lambda _: listener())

    def read(self) -> list[Any] | None:
        taken = self._emitter.take()
        if taken is not None:
            records, self.position = taken
            return records
        if not self._pushing.done():
            return []
        self._pushing.result()
        return None

    def close(self) -> None:
        self._pushing.cancel()


def _nobody() -> None:
    """Nobody listens yet."""
