"""How far event time is at a task's inputs: pure.

Invariants: an input that is idle or ended holds nothing back; an input without a watermark holds
back everything; where all are idle, the greatest watermark of any input counts.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from tidelog.runtime.channels.messages import Splits
from tidelog.runtime.in_flight.capture import InputChannel
from tidelog.runtime.operators.event_time import Origin
from tidelog.state.event_time import MAX_WATERMARK

T = TypeVar("T")


class WatermarkValve:
    """Combines the watermarks of a task's input channels."""

    def __init__(self, channels: int) -> None:
        self._watermarks: list[int | None] = [None] * channels
        self._idle = [False] * channels

    def watermark(self, channel: int, time: int) -> None:
        self._watermarks[channel] = time
        if time == MAX_WATERMARK:
            self._idle[channel] = False

    def idleness(self, channel: int, *, idle: bool) -> None:
        self._idle[channel] = idle

    def ended(self, channel: int) -> bool:
        return self._watermarks[channel] == MAX_WATERMARK

    def is_idle(self, channel: int) -> bool:
        """Whether the producer of a channel has announced that it is idle."""
        return self._idle[channel]

    @property
    def idle(self) -> bool:
        """All channels that have not ended are idle, and there is one."""
        running = [at for at in range(len(self._idle)) if not self.ended(at)]
        return bool(running) and all(self._idle[at] for at in running)

    @property
    def time(self) -> int | None:
        """The watermark of all channels together; None: unknown."""
        channels = range(len(self._watermarks))
        holding = [] if self.idle else [at for at in channels if not self._idle[at]]
        left = (at for at in channels if not self.ended(at))
        return combined(holding, left, self._watermarks.__getitem__)


class InputOrigins:
    """The origins that the channels of a stream task bring: where the producer announces which
    splits it reads these splits, else the channel itself.
    """

    def __init__(self, inputs: Iterable[InputChannel], now: float) -> None:
        carrying = {at: each.announces for at, each in enumerate(inputs) if each.carries}
        self._current: dict[int, Origin | None] = {
            at: None if announces else (at,) for at, announces in carrying.items()
        }
        self._origins: dict[int, tuple[Origin, ...] | None] = {
            at: None if announces else ((at,),) for at, announces in carrying.items()
        }
        self._active_at: dict[Origin, float] = {(at,): now for at in carrying}

    def on_splits_announced(self, channel: int, splits: Splits, now: float) -> list[Origin]:
        """The producer of a channel says what it reads; returns the origins that ended."""
        if channel not in self._origins:
            return []
        before = self._origins[channel] or ()
        origins = self._origins[channel] = tuple((channel, s) for s in splits.unfinished)
        self._current[channel] = None if splits.current is None else (channel, splits.current)
        for origin in origins:
            self._active_at.setdefault(origin, now)
        return [origin for origin in before if origin not in set(origins)]

    def ended(self, channel: int) -> list[Origin]:
        return list(self._origins.pop(channel, None) or ())

    def current(self, channel: int) -> Origin | None:
        """The origin of a buffer that has just arrived on a channel; None: not known."""
        return self._current.get(channel)

    def on_activity(self, origin: Origin | None, now: float) -> None:
        """Records of an origin got their event times."""
        if origin is not None:
            self._active_at[origin] = now

    @property
    def exhausted(self) -> bool:
        """No record can follow: every channel that brings some has ended."""
        return not self._origins

    @property
    def complete(self) -> bool:
        """Every channel has announced its origins."""
        return all(origins is not None for origins in self._origins.values())

    def unfinished(self) -> Iterator[tuple[int, Origin]]:
        """All origins that records may follow from, with their channels."""
        for channel, origins in self._origins.items():
            for origin in origins or ():
                yield channel, origin

    def quiet_s(self, origin: Origin, now: float) -> float:
        """Seconds since the last record of an origin."""
        return now - self._active_at[origin]


class LeastWatermark:
    """The least of the watermarks of many splits, each of which only grows; None: not begun.

    The least one is searched again only when its split moved on or was dropped: thousands of splits
    that are read in turn are all looked at once per turn, not once per read.
    """

    def __init__(self) -> None:
        self._marks: dict[str, int | None] = {}
        self._holder: str | None = None

    def __len__(self) -> int:
        return len(self._marks)

    def __contains__(self, split: str) -> bool:
        return split in self._marks

    def put(self, split: str, mark: int | None) -> None:
        self._marks[split] = mark
        if split == self._holder:
            self._holder = None
        elif self._holder is not None and _less(mark, self._marks[self._holder]):
            self._holder = split

    def drop(self, split: str) -> None:
        """Leave a split out from now on."""
        self._marks.pop(split, None)
        if split == self._holder:
            self._holder = None

    @property
    def mark(self) -> int | None:
        """The least one; raises ValueError without any split."""
        if self._holder is None:
            # Of equal ones the last: it is read after the others, so it stays the least longest.
            self._holder = min(reversed(self._marks), key=self._order)
        return self._marks[self._holder]

    def _order(self, split: str) -> tuple[bool, int]:
        mark = self._marks[split]
        return mark is not None, mark or 0


def _less(mark: int | None, other: int | None) -> bool:
    return other is not None and (mark is None or mark < other)


def combined(
    holding: Iterable[T], idle: Iterable[T], watermark_of: Callable[[T], int | None]
) -> int | None:
    """The least watermark of those that hold it; without any, the greatest of the idle ones."""
    marks = [watermark_of(origin) for origin in holding]
    known = [mark for mark in marks if mark is not None]
    if marks:
        return min(known) if len(known) == len(marks) else None
    left = (watermark_of(origin) for origin in idle)
    return max((mark for mark in left if mark is not None), default=None)
