"""The values of windows that overlap, from the slices that they share.

Windows that have a time in common are combined together: the slices that all of them have once,
those before from the last to the first, and those after from the first to the last. So a window
costs a few combinations, however many slices it has. Pure.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from tidelog.runtime.channels.copies import copies_of

_TOGETHER: Final = 128
"""Windows at a time: a value of each is in memory."""

Combine = Callable[[Any, Any], Any]
"""Combines two values, of which the first may be None, to one; it may change both."""
Slice = tuple[int, Any]
"""The start of a slice of time, and the value of its records."""


def together(starts: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    """Windows, given by their starts in order, in groups with a time in common."""
    first = 0
    while first < len(starts):
        end = min(first + _TOGETHER, bisect_left(starts, starts[first] + size))
        yield starts[first:end]
        first = end


def combined(
    slices: list[Slice], starts: Sequence[int], size: int, combine: Combine
) -> Iterator[tuple[int, Any] | None]:
    """Start and value of each window of a group; None after other steps, of which there are many.

    `slices` are those from the first start to the end of the last window, in order.
    """
    begin, end = (bisect_left(slices, (time,)) for time in (starts[-1], starts[0] + size))
    shared = None
    for _, value in slices[begin:end]:
        shared = combine(shared, value)
        yield None
    heads: list[Any] = []
    head = None
    for start in reversed(starts):
        while begin > 0 and slices[begin - 1][0] >= start:
            begin -= 1
            value = slices[begin][1]
            head = value if head is None else combine(value, head)
        heads += copies_of([head])
        yield None
    tail = None
    for start in starts:
        while end < len(slices) and slices[end][0] < start + size:
            tail = combine(tail, slices[end][1])
            end += 1
        window = heads.pop()
        for part in copies_of([shared, tail]):
            window = window if part is None else combine(window, part)
        yield start, window
