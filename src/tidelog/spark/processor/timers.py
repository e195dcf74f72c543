"""The timers of one partition in one batch, over Spark's.

Invariants: a timer that a handler deletes does not fire, also when Spark has read it ahead; the
times of a key are listed ascending.
"""

from collections.abc import Iterator
from typing import Any

Key = tuple[Any, ...]


class SparkTimers:
    """Timers of the current key; `handle` is pyspark's."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._key: Key = ()
        self._firing = False
        self._deleted: set[tuple[Key, int]] = set()
        """While timers fire: those deleted since, which Spark may hold in a chunk it has read."""

    def use(self, key: Key) -> None:
        """Make a key current."""
        self._key = key

    def fires(self, time_ms: int) -> bool:
        """Whether this timer of the current key, which Spark wants to fire, still exists."""
        self._firing = True
        return (self._key, time_ms) not in self._deleted

    def register(self, time_ms: int) -> None:
        """Add a timer for the current key; adding it twice is adding it once."""
        self._deleted.discard((self._key, time_ms))
        self._handle.registerTimer(time_ms)

    def delete(self, time_ms: int) -> None:
        """Remove a timer of the current key."""
        if self._firing:
            self._deleted.add((self._key, time_ms))
        self._handle.deleteTimer(time_ms)

    def list(self) -> Iterator[int]:
        """Times of the current key's timers, ascending."""
        return iter(sorted(self._handle.listTimers()))
