"""Iterables, numbers at a rate and what client libraries push, as sources.

Invariants: a position of an iterable or of numbers is how many records were read, and replay makes
the same ones again. What a client library pushes is taken only when the task has room for its
output, so it waits like any source; its position is stored together with its records, and what was
not taken is pushed again after a restart.
"""

import asyncio
import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from itertools import islice
from typing import Any, Final

from tidelog.connectors.arguments import typed
from tidelog.effects import Clock, SystemClock
from tidelog.errors import ConfigError, RestoreError, UserFunctionError, require
from tidelog.options.units import plural
from tidelog.runtime.channels.buffers import next_values
from tidelog.runtime.channels.copies import copies_of
from tidelog.runtime.operators.outputs import Distinct
from tidelog.runtime.source import Source, SplitReader
from tidelog.runtime.user_code import map_lazily

Records = Sequence[Any] | Callable[[], Iterable[Any]]
"""A sequence, or a function that makes an iterable over the same records every time."""

_MADE_RECORDS: Final = 1024
_NUMBERS: Final = 4096
"""Records of one read."""
_ENDLESS: Final = 1 << 62
_LEAST_DELAY_S: Final = 0.01
"""Waiting shorter than this would hand out buffers of few records at high rates."""


class IterableSource(Source):
    """The records of a list, tuple, range or other sequence, or of a function's iterables.

    A mapping from names to these gives several splits. `blocking` says that the iterators wait for
    I/O: each is read in a thread, and a record goes on as soon as it is there. Raises
    ConfigError for what cannot be read twice, as a generator.
    """

    @typed
    def __init__(self, records: Records | Mapping[str, Records], *, blocking: bool = False) -> None:
        self._splits = dict(records) if isinstance(records, Mapping) else {"records": records}
        self.blocking = blocking
        self.has_end = not blocking
        for name, split in self._splits.items():
            if not isinstance(split, Sequence) and not callable(split):
                raise ConfigError(
                    f"split {name!r}",
                    expected="a sequence, or a function that makes a fresh iterable",
                    found=type(split).__name__,
                    action="pass a list, or `lambda: ...` around what makes the records",
                )

    def discover(self) -> list[str]:
        return list(self._splits)

    def open(self, split: str, position: Any) -> "IterableReader":
        """Raises RestoreError when the records end before the position, or the split is gone."""
        if split not in self._splits:
            raise RestoreError(
                f"split {split!r}",
                expected=f"one of {list(self._splits)}",
                found="one that only the checkpoint has",
                action="name the splits as before, or start without this checkpoint",
            )
        records = self._splits[split]
        iterator = iter(records() if callable(records) else records)
        by_function = callable(records)
        return IterableReader(
            split, iterator, position or 0, waits=self.blocking, by_function=by_function
        )


class IterableReader(SplitReader):
    """Reads one iterator; exceptions it raises pass through."""

    position: int

    def __init__(
        self, split: str, iterator: Iterator[Any], position: int, *, waits: bool, by_function: bool
    ) -> None:
        """`by_function`: a function makes the records, so it may change what it has given."""
        self.reads_single_records = waits
        self._distinct = Distinct() if by_function else None
        self._iterator = iterator
        self.position = position
        skipped = sum(1 for _ in islice(iterator, position))
        if skipped < position:
            raise RestoreError(
                f"split {split!r}",
                expected=f"at least {plural(position, 'record')}, as many as were read before",
                found=f"{skipped}",
                action="make the iterable give the same records every time",
            )

    def read(self) -> list[Any] | None:
        # Waiting for a second record would hold back the first.
        records = next_values(self._iterator, 1 if self.reads_single_records else _MADE_RECORDS)
        if self._distinct is not None:
            self._distinct.check(records)
        else:
            with suppress(UserFunctionError):  # without copies a function changes the user's own
                records = copies_of(records)
        self.position += len(records)
        return records or None

    def close(self) -> None:
        """Close a generator, so that its `finally` clauses run now."""
        close = getattr(self._iterator, "close", None)
        if close is not None:
            close()


class RateSource(Source):
    """`make(n)` for n = start, start + 1, ..., in `limit` records or for ever; without it n alone.

    `records_per_s` is the rate of all splits together; None: as fast as possible. Records that
    became due while nobody read are made up for. Numbers go to the splits in turn, so a restart
    with another number of `splits` is refused. Raises ConfigError for numbers out of range.
    """

    @typed
    def __init__(
        self,
        records_per_s: float | None,
        *,
        splits: int = 1,
        limit: int | None = None,
        start: int = 0,
        make: Callable[[int], Any] | None = None,
        clock: Clock | None = None,
    ) -> None:
        fits = records_per_s is None or 0 < records_per_s < math.inf
        require("records_per_s", records_per_s, fits, "more than 0, or None: as fast as possible")
        require("splits", splits, splits >= 1, "at least 1")
        require("limit", limit, limit is None or limit >= 0, "at least 0")
        self._records_per_s = records_per_s
        self.splits = splits
        self._limit = limit
        self.has_end = limit is not None
        self._start = start
        self.make = make
        self.clock = SystemClock() if clock is None else clock

    def discover(self) -> list[str]:
        return list(map(str, range(self.splits)))

    def check_position(self, split: str, position: Any) -> None:
        """Raises RestoreError where there were more or fewer: others have its numbers now."""
        _, splits = self._position(position)
        if splits != self.splits or not (split.isdecimal() and int(split) < self.splits):
            raise RestoreError(
                f"split {split!r} of a RateSource",
                expected=f"one of {plural(self.splits, 'split')} in the checkpoint",
                found=f"one of {splits}" if splits else "that of another kind of source",
                action="pass as many splits= as before, or start without this checkpoint",
            )

    def _position(self, position: Any) -> tuple[int, int]:
        """Records that were read, and among how many splits numbers were dealt out; 0 splits in the
        position of another kind of source.
        """
        if position is None:
            return 0, self.splits
        records, splits = position if isinstance(position, list | tuple) else (0, 0)
        return records, splits

    def open(self, split: str, position: Any) -> "RateReader":
        """Raises RestoreError as `check_position`."""
        self.check_position(split, position)
        records, _ = self._position(position)
        end = _ENDLESS if self._limit is None else self._start + self._limit
        numbers = range(self._start + int(split), end, self.splits)
        rate = None if self._records_per_s is None else self._records_per_s / self.splits
        return RateReader(self, numbers, records, rate)


class RateReader(SplitReader):
    """The records of one split, from as many on as were read."""

    def __init__(self, source: RateSource, numbers: range, read: int, rate: float | None) -> None:
        self._splits = source.splits
        self._numbers = numbers
        self._rate = rate
        self._make = source.make
        self._distinct = Distinct()
        self._clock = source.clock
        self._opened_at = source.clock.monotonic()
        self._opened_read = self._read = read

    @property
    def position(self) -> tuple[int, int]:
        return self._read, self._splits

    def read(self) -> list[Any] | None:
        if not self._numbers[self._read :]:
            return None
        end = self._read + _NUMBERS
        if self._rate is not None:
            end = min(end, self._due(self._rate))
        numbers = self._numbers[self._read : end]
        if self._make is None:
            records = list(numbers)
        else:
            records = next_values(map_lazily(self._make, numbers), _NUMBERS)
            self._distinct.check(records)
        self._read += len(records)
        return records

    def _due(self, rate: float) -> int:
        """How many records are due by now at this rate; sets the delay until there are more."""
        elapsed = self._clock.monotonic() - self._opened_at
        due = self._opened_read + int(elapsed * rate)
        until_next = (due + 1 - self._opened_read) / rate - elapsed
        self.delay_s = max(until_next, _LEAST_DELAY_S)
        return due


class Emitter:
    """Takes what a source pushes; one per split, used in the event loop."""

    def __init__(self) -> None:
        self._offered: dict[asyncio.Future[None], tuple[list[Any], Any]] = {}
        self._listener: Callable[[], None] = lambda: None
        self._distinct = Distinct()
        self._closed = False

    async def emit(self, records: Iterable[Any], position: Any) -> None:
        """Push records; returns when the task has taken them over, not before it had room.

        `position` (of any type that state keeps) is where the split goes on after them. Raises
        CancelledError when the job takes no more: threads do not wait for one that has stopped.
        After a call that was cancelled, as one in `asyncio.timeout` is, they are not taken.
        """
        if self._closed:
            raise asyncio.CancelledError
        records = list(records)
        self._distinct.check(records)
        receipt = asyncio.get_running_loop().create_future()
        # The source may go on in the same object, such as a dict of offsets.
        self._offered[receipt] = records, deepcopy(position)
        self._listener()
        try:
            await receipt
        finally:
            self._offered.pop(receipt, None)

    def set_listener(self, listener: Callable[[], None]) -> None:
        """Call this when something was offered."""
        self._listener = listener

    def take(self) -> tuple[list[Any], Any] | None:
        """What was offered first."""
        while self._offered:
            receipt = next(iter(self._offered))
            offered = self._offered.pop(receipt)
            if not receipt.done():  # by who has pushed it, and waits no more
                receipt.set_result(None)
                return offered
        return None

    def close(self) -> None:
        """Nothing is taken any more."""
        self._closed = True
        for receipt in self._offered:
            receipt.cancel()


class PushSource(Source):
    """Subclasses say what splits there are and push the records of each."""

    @abstractmethod
    async def push(self, split: str, position: Any, emitter: Emitter) -> None:
        """Push a split's records after a position (None: all) with `emitter.emit`.

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

    def set_listener(self, listener: Callable[[], None]) -> None:
        self._emitter.set_listener(listener)
        self._pushing.add_done_callback(lambda _: listener())

    def read(self) -> list[Any] | None:
        batch = self._emitter.take()
        if batch is not None:
            records, self.position = batch
            return records
        if not self._pushing.done():
            return []
        self._pushing.result()
        return None

    def close(self) -> None:
        self._pushing.cancel()
        self._emitter.close()
