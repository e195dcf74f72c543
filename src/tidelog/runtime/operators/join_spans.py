"""Which records of two streams go together: those within an interval, or in one window.

Both keep a record in buckets of time and look for its partners in some of the other stream's; times
are in milliseconds. Invariant: a bucket that has ended, where event time has passed its last time,
holds nothing that a record which is not late could be joined with.
"""

from collections.abc import Sequence
from math import inf
from typing import Any

from tidelog.errors import require
from tidelog.options.units import milliseconds
from tidelog.runtime.operators.late_records import has_passed
from tidelog.runtime.operators.spans import WindowSpan
from tidelog.state.timed_rows import Held

LEFT, RIGHT = 0, 1
Partners = tuple[Sequence[int], float, float]
"""The other side's buckets where partners of a record are, and their least and greatest time."""


class Interval:
    """Pairs with lower <= right time - left time <= upper.

    A record lies in the bucket of the time up to which there may be partners. Buckets are half as
    long as the interval, so partners are in three at most, and a record stays for half an interval
    longer than it has to.
    """

    def __init__(self, lower_ms: int, upper_ms: int) -> None:
        """Raises ConfigError for an interval that is empty."""
        found = f"{lower_ms} ms, {upper_ms} ms"
        require("join(..., within=...)", found, lower_ms <= upper_ms, "lower <= upper")
        self._bounds = (lower_ms, upper_ms), (-upper_ms, -lower_ms)
        self._length = max(1, (upper_ms - lower_ms + 1) // 2)
        self._facing = (upper_ms - lower_ms + self._length - 1) // self._length + 1
        self.text = f"within {lower_ms} to {upper_ms} ms"
        """What stored buckets depend on: state is not read with another span."""

    def own(self, side: int, time: int, watermark: int) -> Sequence[int]:
        """The buckets of a record of a side; it is kept in those that have not ended."""
        return ((time + self._bounds[side][1]) // self._length,)

    def partners(self, side: int, time: int, own: int) -> Partners:
        """Where the partners of a record of a side are."""
        lower, upper = self._bounds[side]
        first = time // self._length
        return range(first, first + self._facing), time + lower, time + upper

    def end(self, bucket: int) -> int:
        """The last time of a bucket: it has ended when the watermark is there."""
        return (bucket + 1) * self._length - 1

    def ended(self, watermark: int) -> int:
        """The last bucket that has ended."""
        return (watermark + 1) // self._length - 1

    is_late = staticmethod(has_passed)

    def pair_times(self, time: int, found: Sequence[Held], own: int) -> list[int]:
        """The event times of the pairs of a record of the bucket `own`."""
        return [max(time, held[0]) for held in found]


class SameWindow:
    """Pairs in one tumbling or sliding window, whose start is the bucket; methods as `Interval`."""

    def __init__(self, span: WindowSpan) -> None:
        self._span = span
        self.text = f"window of {span.size_ms} ms every {span.slide_ms} ms"

    def own(self, side: int, time: int, watermark: int) -> Sequence[int]:
        return self._span.starts(time, watermark)[::-1]

    def partners(self, side: int, time: int, own: int) -> Partners:
        return (own,), -inf, inf

    def end(self, bucket: int) -> int:
        return bucket + self._span.size_ms - 1

    def ended(self, watermark: int) -> int:
        return watermark - self._span.size_ms + 1

    def is_late(self, time: int, watermark: int) -> bool:
        return self._span.last_end(time) <= watermark

    def pair_times(self, time: int, found: Sequence[Held], own: int) -> list[int]:
        return [self.end(own)] * len(found)


JoinSpan = Interval | SameWindow


def join_span(within: Any, window: Any) -> JoinSpan:
    """The span of a join by its arguments, of which one is given; raises ConfigError."""
    found = "none" if within is None else "both"
    one = (within is None) != (window is None)
    require("join(...)", found, one, "within=(lower, upper) or window=")
    if within is None:
        span = getattr(window, "span", window)  # sessions and counts have none
        fits = isinstance(span, WindowSpan)
        require("join(..., window=...)", window, fits, "a tumbling window, or a sliding one")
        return SameWindow(span)
    two = isinstance(within, tuple | list) and len(within) == 2
    require("join(..., within=...)", within, two, "two bounds, such as ('-5m', '5m')")
    what = "a bound of join(..., within=...)"
    return Interval(*[milliseconds(what, bound, signed=True) for bound in within])
