"""How far event time is at a task's inputs, and how far they are at their end: pure.

Invariants: an input that is idle or ended holds nothing back; an input without a watermark holds
back everything; where all are idle, the greatest watermark of any input counts.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from heapq import heapify, heappop, heappush
from itertools import takewhile
from typing import Final, NamedTuple, TypeVar, cast

from tidelog.runtime.channels.messages import Splits
from tidelog.runtime.in_flight.capture import InputChannel
from tidelog.runtime.operators.event_time import Origin
from tidelog.state.event_time import MAX_WATERMARK, UNKNOWN

T = TypeVar("T")
_BEFORE_ALL: Final = UNKNOWN - 1
_COMPACTED: Final = 4
"""Entries of a heap for each one that counts, from which on the others are removed."""


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
        running = [channel for channel in range(len(self._idle)) if not self.ended(channel)]
        return bool(running) and all(self._idle[channel] for channel in running)

    @property
    def time(self) -> int | None:
        """The watermark of all channels together; None: unknown."""
        channels = range(len(self._watermarks))
        holding = [] if self.idle else [channel for channel in channels if not self._idle[channel]]
        unfinished = (channel for channel in channels if not self.ended(channel))
        return combined(holding, unfinished, self._watermarks.__getitem__)


def channel_of(origin: Origin) -> int:
    """The channel that an origin of a task's inputs is on."""
    return cast("tuple[int, ...]", origin)[0]


class ChannelEnds:
    """How far so many input channels are at their end.

    A channel ends in three steps: all of the input was handled, the data has ended, the producer
    has exited. A task takes each step after all its channels.
    """

    def __init__(self, channels: int) -> None:
        self._count = channels
        self._at_end: dict[int, bool] = {}
        """Channels of which all input was handled, and whether their producers hold records."""
        self._ended: dict[int, bool] = {}
        """Channels whose data has ended, and whether they are drained."""
        self._exited: set[int] = set()

    def on_end_of_input(self, channel: int, *, holds: bool) -> None:
        self._at_end[channel] = holds

    def on_end_of_data(self, channel: int, *, drain: bool) -> None:
        self._ended[channel] = drain

    def on_exit(self, channel: int) -> None:
        self._exited.add(channel)

    @property
    def at_end(self) -> bool:
        """All input was handled, on all channels."""
        return len(self._at_end) == self._count

    @property
    def holds(self) -> bool:
        """Some producer holds records that it emits when the input ends."""
        return any(self._at_end.values())

    @property
    def ended(self) -> bool:
        """The data of all channels has ended."""
        return len(self._ended) == self._count

    @property
    def drained(self) -> bool:
        """The data has ended for good, and not because the job stops."""
        return all(self._ended.values())

    @property
    def exited(self) -> bool:
        """All producers have exited."""
        return len(self._exited) == self._count


class OriginChanges(NamedTuple):
    """Origins that are new at a task's inputs, and those that have ended there."""

    started_origins: Sequence[Origin] = ()
    ended_origins: Sequence[Origin] = ()


class InputOrigins:
    """The origins that the channels of a stream task bring: where the producer announces which
    splits it reads these splits, else the channel itself.
    """

    def __init__(self, inputs: Iterable[InputChannel]) -> None:
        carrying = {
            number: channel.announces for number, channel in enumerate(inputs) if channel.carries
        }
        self._current: dict[int, Origin | None] = {
            number: None if announces else (number,) for number, announces in carrying.items()
        }
        self._origins: dict[int, set[Origin] | None] = {
            number: None if announces else {(number,)} for number, announces in carrying.items()
        }
        self.unannounced = [
            (number, (number,)) for number, announces in carrying.items() if not announces
        ]
        """The channels whose producers do not announce what they read, and their origins."""

    def on_splits_announced(self, channel: int, splits: Splits) -> OriginChanges:
        """The producer of a channel says what has changed in what it reads."""
        if channel not in self._origins:
            return OriginChanges()
        origins = self._origins[channel] or set()
        started_origins = [(channel, split) for split in splits.started_splits]
        ended_origins = [(channel, split) for split in splits.ended_splits]
        origins.update(started_origins)
        origins.difference_update(ended_origins)
        self._origins[channel] = origins
        self._current[channel] = None if splits.current is None else (channel, splits.current)
        return OriginChanges(started_origins, ended_origins)

    def at_end(self, channel: int) -> OriginChanges:
        """All input of a channel was handled: its splits have ended, but for one not announced."""
        origins = self._origins.get(channel)
        if not origins or origins == {(channel,)}:
            return OriginChanges()
        self._origins[channel] = set()
        return OriginChanges(ended_origins=list(origins))

    def ended(self, channel: int) -> OriginChanges:
        return OriginChanges(ended_origins=list(self._origins.pop(channel, None) or ()))

    def current(self, channel: int) -> Origin | None:
        """The origin of a buffer that has just arrived on a channel; None: not known."""
        return self._current.get(channel)

    @property
    def exhausted(self) -> bool:
        """No record can follow: every channel that brings some has ended."""
        return not self._origins

    @property
    def complete(self) -> bool:
        """Every channel has announced its origins."""
        return all(origins is not None for origins in self._origins.values())


class OriginWatermarks:
    """How far event time is in the unfinished origins of a task, of which some are idle.

    Invariant: what a buffer costs does not depend on the number of origins.
    """

    def __init__(self, watermark_of: Callable[[Origin], int | None]) -> None:
        self._watermark_of = watermark_of
        self._holding = LeastWatermark()
        self._idle: set[Origin] = set()
        self._active_at: dict[Origin, float] = {}
        """When those that are not idle were last active, the earliest first."""

    def on_activity(self, origin: Origin, now: float) -> None:
        """An origin has begun, or its records got event times."""
        self._idle.discard(origin)
        self._active_at.pop(origin, None)
        self._active_at[origin] = now
        self._holding.put(origin, self._watermark_of(origin))

    def on_end(self, origin: Origin) -> None:
        self._idle.discard(origin)
        self._active_at.pop(origin, None)
        self._holding.drop(origin)

    def is_unfinished(self, origin: Origin) -> bool:
        return origin in self._idle or origin in self._active_at

    def set_idle(self, origin: Origin, now: float, *, idle: bool) -> None:
        """An unfinished origin is to hold event time back, or not to."""
        if idle:
            self.on_end(origin)
            self._idle.add(origin)
        elif origin in self._idle:
            self.on_activity(origin, now)

    def quiet_since(self, moment: float) -> list[Origin]:
        """Origins that hold event time back, and have not been active after a moment."""
        return list(takewhile(lambda origin: self._active_at[origin] <= moment, self._active_at))

    @property
    def holds(self) -> bool:
        """Whether event time waits for some origin."""
        return bool(self._holding)

    @property
    def mark(self) -> int | None:
        """The least watermark of those that are not idle; without any, the greatest of all."""
        if self._holding:
            return self._holding.mark
        return combined((), self._idle, self._watermark_of)


class LeastWatermark:
    """The least of the watermarks of many origins, each of which only grows; None: not begun."""

    def __init__(self) -> None:
        self._marks: dict[Hashable, int | None] = {}
        self._heap: list[tuple[int, int, Hashable]] = []
        """The marks there are, and some that have grown or gone since: none of those is least."""
        self._count = 0
        """Marks so far, which orders equal ones in the heap: origins cannot be compared."""

    def __len__(self) -> int:
        return len(self._marks)

    def __contains__(self, origin: Hashable) -> bool:
        return origin in self._marks

    def put(self, origin: Hashable, mark: int | None) -> None:
        if origin in self._marks and self._marks[origin] == mark:
            return
        self._marks[origin] = mark
        if len(self._heap) > _COMPACTED * (len(self._marks) + 1):
            self._heap = [self._entry(origin) for origin in self._marks]
            heapify(self._heap)
        else:
            heappush(self._heap, self._entry(origin))

    def drop(self, origin: Hashable) -> None:
        """Leave an origin out from now on."""
        self._marks.pop(origin, None)

    @property
    def mark(self) -> int | None:
        """The least one; raises IndexError without any."""
        heap, marks = self._heap, self._marks
        while True:
            order, _, origin = heap[0]
            if origin in marks and _order(marks[origin]) == order:
                return marks[origin]
            heappop(heap)

    def _entry(self, origin: Hashable) -> tuple[int, int, Hashable]:
        self._count -= 1
        return _order(self._marks[origin]), self._count, origin


def _order(mark: int | None) -> int:
    """What has not begun is before all times."""
    return _BEFORE_ALL if mark is None else mark


def combined(
    holding: Iterable[T], idle: Iterable[T], watermark_of: Callable[[T], int | None]
) -> int | None:
    """The least watermark of those that hold it; without any, the greatest of the idle ones."""
    marks = [watermark_of(origin) for origin in holding]
    known_marks = [mark for mark in marks if mark is not None]
    if marks:
        return min(known_marks) if len(known_marks) == len(marks) else None
    idle_marks = (watermark_of(origin) for origin in idle)
    return max((mark for mark in idle_marks if mark is not None), default=None)
