"""Sources whose records arrive over virtual time.

Invariant: the records of a split and their arrivals are fixed before the run; a position is the
number of records read.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from tidelog.runtime.source import Source, SplitReader


class Record(NamedTuple):
    """What flows through simulated jobs."""

    key: str
    number: int
    """Unique within a run."""
    value: int
    time: int
    """Event time in milliseconds; within a split out of order by a bounded time only."""


class Followed:
    """Splits that are followed: none ends before all of them have been read."""

    def __init__(self, splits: Iterable[str]) -> None:
        self._unread = set(splits)

    def read(self, split: str) -> bool:
        """A split was read as far as it goes; whether all were."""
        self._unread.discard(split)
        return not self._unread


@dataclass(frozen=True, slots=True)
class Arriving:
    """One split: records and the virtual second each arrives at, ascending."""

    records: tuple[Any, ...]
    arrivals: tuple[float, ...]
    open_until: float = 0.0
    """The virtual second before which nobody knows that there are no more."""
    followed: Followed | None = None
    """With which other splits it ends; None: on its own."""


class Arrivals(Source):
    """Reads at most `portion` records at a time, as far as they have arrived by `now`."""

    def __init__(
        self,
        splits: dict[str, Arriving],
        portion: int,
        pause: float,
        now: Callable[[], float],
        *,
        blocking: bool,
    ) -> None:
        self.splits = splits
        self.blocking = blocking
        self.portion = portion
        self.pause = pause
        self.now = now

    def discover(self) -> Iterable[str]:
        return list(self.splits)

    def open(self, split: str, position: Any) -> SplitReader:
        return _Reader(self, split, position or 0)


class _Reader(SplitReader):
    def __init__(self, source: Arrivals, name: str, position: int) -> None:
        self.position = position
        self.delay_s = source.pause
        self._source = source
        self._name = name
        self._split = source.splits[name]

    def read(self) -> list[Any] | None:
        split, at = self._split, self.position
        if at >= len(split.records):
            over = split.followed is None or split.followed.read(self._name)
            return None if over and self._source.now() >= split.open_until else []
        now, end = self._source.now(), min(at + self._source.portion, len(split.records))
        while end > at and split.arrivals[end - 1] > now:
            end -= 1
        self.position = end
        return list(split.records[at:end])
