"""Sources whose records arrive over virtual time.

Invariant: the records of a split and their arrivals are fixed before the run; a position is the
number of records read.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final, NamedTuple

from tidelog.runtime.source import Source, SplitReader

STREAM_S: Final = 5.0
"""Records arrive within this many virtual seconds, unless they are there from the start."""
DISORDER_MS: Final = 300
"""How much older than the greatest time before it in its split a record is at most."""


class Record(NamedTuple):
    """What flows through simulated jobs."""

    key: str
    number: int
    """Unique within a run."""
    value: int
    time: int
    """Event time in milliseconds; within a split out of order by a bounded time only."""


@dataclass(frozen=True, slots=True)
class Split:
    """Records, of which one arrives every `every_s` virtual seconds."""

    records: tuple[Any, ...]
    every_s: float = 0.0
    open_until: float = 0.0
    """The virtual second before which nobody knows that there are no more."""


@dataclass(frozen=True, eq=False)
class Arrivals(Source):
    """Reads at most `chunk` records at a time, as far as they have arrived."""

    splits: dict[str, Split]
    chunk: int
    pause: float
    blocking: bool = False

    @property
    def records(self) -> list[Any]:
        return [record for split in self.splits.values() for record in split.records]

    def discover(self) -> Iterable[str]:
        return list(self.splits)

    def open(self, split: str, position: Any) -> SplitReader:
        return _Reader(self, split, position or 0)


class _Reader(SplitReader):
    def __init__(self, source: Arrivals, name: str, position: int) -> None:
        self.position = position
        self.delay_s = source.pause
        self._chunk = source.chunk
        self._split = source.splits[name]

    def read(self) -> list[Any] | None:
        split, at, now = self._split, self.position, asyncio.get_running_loop().time()
        if at >= len(split.records):
            return None if now >= split.open_until else []
        end = min(at + self._chunk, len(split.records))
        while end > at and (end - 1) * split.every_s > now:
            end -= 1
        self.position = end
        return list(split.records[at:end])


def drawn_arrivals(
    rng: Random,
    make: Callable[[int, int], Any],
    splits: Sequence[int] = (1, 2, 3),
    lengths: Sequence[int] = (0, 5, 30, 60),
    *,
    at_once: float = 0.4,
    open_until: float = 0.0,
    stream_s: float = STREAM_S,
) -> Arrivals:
    """As many splits as one of `splits`; `make` gets number and event time of each record.

    `at_once` is the share of splits that are there from the start; the others come in `stream_s`.
    """
    drawn: dict[str, Split] = {}
    for at in range(rng.choice(splits)):
        length, every_s = rng.choice(lengths), 0.0
        begins, pace = rng.randrange(-2000, 2000), rng.choice((5, 40, 80))
        times = [begins + n * pace + rng.randrange(DISORDER_MS) for n in range(length)]
        records = tuple(make(10_000 * at + n, time) for n, time in enumerate(times))
        if rng.random() >= at_once:
            every_s = stream_s / max(1, length)
        drawn[f"split-{at}"] = Split(records, every_s, open_until)
    chunk, pause = rng.choice((2, 10, 50)), rng.choice((0.03, 0.1, 0.3))
    # Blocking reads take time, so that barriers of different sources drift apart.
    return Arrivals(drawn, chunk, pause, blocking=rng.random() < 0.5)
