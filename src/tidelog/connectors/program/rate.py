"""A generator of numbered records at a steady rate.

Invariants: the record numbered n is made from n alone, so every split can be replayed; together
the splits produce each number once; a position is how many records the split has produced.
"""

from collections.abc import Callable
from typing import Any, Final

from tidelog.effects import Clock, SystemClock
from tidelog.errors import require
from tidelog.runtime.channels.buffers import next_values
from tidelog.runtime.operators.distinct import Distinct
from tidelog.runtime.source import Source, SplitReader
from tidelog.runtime.user_code import each

_READ_RECORDS: Final = 4096
_ENDLESS: Final = 1 << 62
_LEAST_DELAY_S: Final = 0.01
"""Waiting shorter than this would hand out buffers of few records at high rates."""


class Rate(Source):
    """`make(n)` for n = start, start + 1, ..., in `limit` records or for ever.

    `records_per_s` is the rate of all splits together; None: as fast as possible. Records that
    became due while nobody read are made up for. Numbers go to the splits in turn. Raises
    ConfigError for numbers out of range.
    """

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
        slow = records_per_s is not None and records_per_s <= 0
        require("records_per_s", records_per_s, not slow, "more than 0")
        require("splits", splits, splits >= 1, "at least 1")
        require("limit", limit, limit is None or limit >= 0, "at least 0")
        self._records_per_s = records_per_s
        self._splits = splits
        self._limit = limit
        self._start = start
        self._make = make
        self._clock = SystemClock() if clock is None else clock

    def discover(self) -> list[str]:
        """The splits' numbers."""
        return list(map(str, range(self._splits)))

    def open(self, split: str, position: Any) -> "RateReader":
        end = _ENDLESS if self._limit is None else self._start + self._limit
        numbers = range(self._start + int(split), end, self._splits)
        rate = None if self._records_per_s is None else self._records_per_s / self._splits
        return RateReader(numbers, position or 0, rate, self._make, self._clock)


class RateReader(SplitReader):
    """The records of one split, from a position on."""

    position: int

    def __init__(
        self,
        numbers: range,
        position: int,
        rate: float | None,
        make: Callable[[int], Any] | None,
        clock: Clock,
    ) -> None:
        self._numbers = numbers
        self._rate = rate
        self._make = make
        self._distinct = Distinct()
        self._clock = clock
        self._opened_at = clock.monotonic()
        self._opened_position = self.position = position

    def read(self) -> list[Any] | None:
        """The records due by now; exceptions of the user's function pass through."""
        if not self._numbers[self.position :]:
            return None
        end = self.position + _READ_RECORDS
        if self._rate is not None:
            end = min(end, self._due(self._rate))
        numbers = self._numbers[self.position : end]
        if self._make is None:
            records = list(numbers)
        else:
            records = next_values(each(self._make, numbers), _READ_RECORDS)
            self._distinct.check(records)
        self.position += len(records)
        return records

    def _due(self, rate: float) -> int:
        """The position reached by now at this rate; sets the delay until it moves on."""
        elapsed = self._clock.monotonic() - self._opened_at
        due = self._opened_position + int(elapsed * rate)
        until_next = (due + 1 - self._opened_position) / rate - elapsed
        self.delay_s = max(until_next, _LEAST_DELAY_S)
        return due
