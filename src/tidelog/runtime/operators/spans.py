"""Spans of time in milliseconds: of windows, and of joins, whose records go together. Pure."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Final

from tidelog.errors import ConfigError, require
from tidelog.events import Event
from tidelog.options.units import milliseconds
from tidelog.state.timeline import EVENT_TIME, TimedRecord

logger = logging.getLogger(__name__)

MANY_WINDOWS: Final = 100
"""Windows of a record from which on it is said what they cost."""


@dataclass(frozen=True, slots=True)
class Firing:
    """When windows emit, and what becomes of late records."""

    late: str | None = None
    """The side output of late records; None: they are dropped."""
    lateness_ms: int = 0
    """For so long after its end a window still takes records, and fires again."""
    updates: bool = False
    """Windows are emitted after each buffer that changes them, and not at their end."""

    def __str__(self) -> str:
        """The arguments of a window that differ from the default."""
        arguments = {
            "allowed_lateness=": self.lateness_ms,
            "late=": self.late,
            "emit='updates'": self.updates,
        }
        return ", ".join(name for name, value in arguments.items() if value)

    @property
    def once(self) -> bool:
        """Whether each window is emitted once, and needed no more after that."""
        return not (self.lateness_ms or self.updates)


ONCE: Final = Firing()


@dataclass(frozen=True, slots=True)
class WindowSpan:
    """Size and slide in milliseconds; tumbling when they are equal."""

    size_ms: int
    slide_ms: int

    def __post_init__(self) -> None:
        """Raises ConfigError for spans that cannot work."""
        if not 0 < self.slide_ms <= self.size_ms:
            raise ConfigError(
                "window",
                expected="0 < slide <= size",
                found=f"size {self.size_ms} ms, slide {self.slide_ms} ms",
                action="change one of them",
            )

    @property
    def tumbling(self) -> bool:
        """Whether each window is one slice, which no other window has."""
        return self.slide_ms == self.size_ms

    @property
    def windows_of_record(self) -> int:
        return -(-self.size_ms // self.slide_ms)

    def slice_of(self, time_ms: int) -> int:
        """Start of the slice that holds a time: no window starts or ends between the two."""
        into_slide, last_end = time_ms % self.slide_ms, self.size_ms % self.slide_ms
        return time_ms - into_slide + (last_end if into_slide >= last_end else 0)

    def slices_before_next(self, start: int) -> tuple[int, ...]:
        """Starts of the slices of a window that the next window does not have."""
        last_end = self.size_ms % self.slide_ms
        return (start, start + last_end) if last_end else (start,)

    def starts(self, time_ms: int, passed_ms: int) -> range:
        """Starts of the windows of a time that end after `passed_ms`."""
        return range(self.first_after(time_ms, passed_ms), time_ms + 1, self.slide_ms)

    def last_end(self, time_ms: int) -> int:
        """The last time of the last window that has this time."""
        return time_ms - time_ms % self.slide_ms + self.size_ms - 1

    def first_end(self, time_ms: int) -> int:
        """The last time of the first window that has this time."""
        return self.first_after(time_ms, time_ms - 1) + self.size_ms - 1

    def next_end(self, passed_ms: int) -> int:
        """The last time of the first window that ends after `passed_ms`."""
        return self.first_after(passed_ms, passed_ms) + self.size_ms - 1

    def first_after(self, slice_ms: int, passed_ms: int) -> int:
        """Start of the first window with this slice that ends after `passed_ms`."""
        too_early = max(slice_ms, passed_ms + 1) - self.size_ms
        return too_early - too_early % self.slide_ms + self.slide_ms


def warn_of_many(span: WindowSpan, what: str) -> None:
    """Say what each of a record's windows costs where they share nothing, and are many."""
    if span.windows_of_record > MANY_WINDOWS:
        Event.MANY_WINDOWS.log(
            logger,
            size=span.size_ms,
            slide=span.slide_ms,
            windows=span.windows_of_record,
            what=what,
        )


LEFT, RIGHT = 0, 1
Partners = tuple[Sequence[int], float, float]
"""The other side's buckets where partners of a record are, and their earliest and latest time."""


def has_passed(time: int, watermark: int) -> bool:
    """Whether a record with this time is late, where nothing but its own time counts."""
    return time <= watermark


class _Buckets:
    """Buckets of one length: a record lies in that of the last time at which it may be paired."""

    buckets_of_record = 1
    windows = 1
    """How many pairs two records may be: one in each of so many windows."""
    _length: int

    def end(self, bucket: int) -> int:
        """The last time of a bucket: it has ended when the watermark is there."""
        return (bucket + 1) * self._length - 1

    def last_ended(self, watermark: int) -> int:
        return (watermark + 1) // self._length - 1

    def between(self, before: int, last: int) -> range:
        """The buckets after `before`, up to the last one."""
        return range(before + 1, last + 1)


class Interval(_Buckets):
    """Pairs with lower <= right time - left time <= upper. A record is kept in a bucket of time;
    its partners are looked for in a few buckets of the other stream.

    Invariant: a bucket that has ended, where event time has passed its last time, holds nothing
    that a record which is not late could be joined with.

    A record lies in the bucket of the time up to which there may be partners. Buckets are half as
    long as the interval, so partners are in three at most, and a record stays for half an interval
    longer than it has to.
    """

    def __init__(self, lower_ms: int, upper_ms: int) -> None:
        """Raises ConfigError for an interval that is empty."""
        bounds = f"{lower_ms} ms, {upper_ms} ms"
        require("join(..., within=...)", bounds, lower_ms <= upper_ms, "lower <= upper")
        self._bounds = (lower_ms, upper_ms), (-upper_ms, -lower_ms)
        self._length = max(1, (upper_ms - lower_ms + 1) // 2)
        self._facing = (upper_ms - lower_ms + self._length - 1) // self._length + 1
        self.text = f"within {lower_ms} to {upper_ms} ms"
        """What stored buckets depend on: state is not read with another span."""

    def buckets(self, side: int, time: int, watermark: int) -> Sequence[int]:
        """The buckets of a record of a side; it is kept in those that have not ended."""
        return ((time + self._bounds[side][1]) // self._length,)

    def partners(self, side: int, time: int, bucket: int) -> Partners:
        """Where the partners are of a record of a side, as it is in one of its buckets."""
        lower, upper = self._bounds[side]
        first = time // self._length
        return range(first, first + self._facing), time + lower, time + upper

    is_late = staticmethod(has_passed)

    def pairs(
        self, time: int, bucket: int, partners: Sequence[TimedRecord], watermark: int
    ) -> tuple[Sequence[TimedRecord], list[int]]:
        """The partner in each pair of a record of this bucket, and the event time of each pair."""
        return partners, [max(time, partner[EVENT_TIME]) for partner in partners]


class SharedWindows(_Buckets):
    """Pairs in each sliding window that holds both; a record is kept once for all of them. Methods
    as `Interval`.

    Two records are in the windows from the first that has the later one to the last that has the
    earlier one. So nothing has to be known of a window, unless records are wanted that were alone
    in it. A record lies in the bucket of the end of its last window.
    """

    def __init__(self, span: WindowSpan) -> None:
        self._span = span
        self.windows = span.windows_of_record
        self._length = max(1, span.size_ms // 2)
        self.text = SameWindow(span).text

    def buckets(self, side: int, time: int, watermark: int) -> Sequence[int]:
        return (self._span.last_end(time) // self._length,)

    def partners(self, side: int, time: int, bucket: int) -> Partners:
        first, last = self._span.first_after(time, time - 1), self._span.last_end(time)
        length, last_end = self._length, self._span.last_end
        return range(last_end(first) // length, last_end(last) // length + 1), first, last

    def is_late(self, time: int, watermark: int) -> bool:
        return self._span.last_end(time) <= watermark

    def pairs(
        self, time: int, bucket: int, partners: Sequence[TimedRecord], watermark: int
    ) -> tuple[Sequence[TimedRecord], list[int]]:
        size, slide, first_after = self._span.size_ms, self._span.slide_ms, self._span.first_after
        partner_of_pair: list[TimedRecord] = []
        times: list[int] = []
        for partner in partners:
            earlier, later = sorted((time, partner[EVENT_TIME]))
            # The last times of the windows that have both and have not ended.
            ends = range(first_after(later, watermark) + size - 1, earlier + size, slide)
            partner_of_pair += [partner] * len(ends)
            times += ends
        return partner_of_pair, times


class SameWindow:
    """Pairs in one tumbling or sliding window, whose start is the bucket; methods as `Interval`."""

    windows = 1

    def __init__(self, span: WindowSpan) -> None:
        self._span = span
        self.buckets_of_record = span.windows_of_record
        self.text = f"window of {span.size_ms} ms every {span.slide_ms} ms"

    def buckets(self, side: int, time: int, watermark: int) -> Sequence[int]:
        return self._span.starts(time, watermark)[::-1]

    def partners(self, side: int, time: int, bucket: int) -> Partners:
        return (bucket,), -inf, inf

    def end(self, bucket: int) -> int:
        return bucket + self._span.size_ms - 1

    def last_ended(self, watermark: int) -> int:
        return watermark - self._span.size_ms + 1

    def between(self, before: int, last: int) -> range:
        slide_ms = self._span.slide_ms
        return range(before + slide_ms - before % slide_ms, last + 1, slide_ms)

    def is_late(self, time: int, watermark: int) -> bool:
        return self._span.last_end(time) <= watermark

    def pairs(
        self, time: int, bucket: int, partners: Sequence[TimedRecord], watermark: int
    ) -> tuple[Sequence[TimedRecord], list[int]]:
        return partners, [self.end(bucket)] * len(partners)


JoinSpan = Interval | SharedWindows | SameWindow


def join_span(within: Any, window: Any, how: str = "inner") -> JoinSpan:
    """The span of a join by its arguments, of which one is given; raises ConfigError."""
    arguments = "none" if within is None else "both"
    one = (within is None) != (window is None)
    require("join(...)", arguments, one, "within=(lower, upper) or window=")
    if within is None:
        span = getattr(window, "span", window)  # sessions and counts have none
        fits = isinstance(span, WindowSpan)
        require("join(..., window=...)", window, fits, "a tumbling window, or a sliding one")
        if how == "inner" and not span.tumbling:
            warn_of_many(span, "a window join emits a pair")
            return SharedWindows(span)
        warn_of_many(span, f"a join with how={how!r} keeps the record and pairs it")
        return SameWindow(span)
    two = isinstance(within, tuple | list) and len(within) == 2
    require("join(..., within=...)", within, two, "two bounds, such as ('-5m', '5m')")
    what = "a bound of join(..., within=...)"
    return Interval(*[milliseconds(what, bound, signed=True) for bound in within])
