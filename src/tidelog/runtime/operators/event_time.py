"""Assigns event times to records and derives watermarks from them, one per origin.

An origin is a source of records in order: a split of a source, or an input channel where splits are
not known. Invariants: the watermark of an origin trails the greatest time seen there by the
allowed delay and never goes back; records of one origin never move the watermark of another.
"""

import logging
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Self

from tidelog.credentials import shows_records, value_text
from tidelog.errors import UserFunctionError, require
from tidelog.events import Event
from tidelog.options.units import Length, milliseconds
from tidelog.runtime.channels.messages import Batch
from tidelog.runtime.operators.operator import Operator, OperatorContext
from tidelog.runtime.user_code import map_all
from tidelog.state.event_time import LATEST, UNKNOWN

logger = logging.getLogger(__name__)

Origin = Hashable

_YEAR_MS: Final = 31_556_952_000
_SECONDS: Final = range(10**8, 10**11)
"""Times of 1970 to 1973 in milliseconds, and of 1973 to 5138 in seconds."""


@dataclass(frozen=True, slots=True)
class EventTimeOptions:
    """How watermarks are made; milliseconds."""

    max_delay_ms: int = 0
    """How much less than the greatest time of its split that of a record may be."""
    idle_after_ms: int | None = None
    """A split without records for so long holds event time back no longer; None: it always does."""
    max_ahead_ms: int = 60_000
    """A split so far ahead of one that has records to read waits for it."""

    @classmethod
    def of(cls, max_delay: Length, idle_after: Length | None, max_ahead: Length) -> Self:
        """Raises ConfigError for what is no length of time."""
        idle = None if idle_after is None else milliseconds("idle_after_ms", idle_after)
        require("idle_after_ms", idle, idle != 0, "at least 1 ms")
        delay = milliseconds("max_delay_ms", max_delay)
        return cls(delay, idle, milliseconds("max_ahead_ms", max_ahead))


class AssignEventTime(Operator):
    """Gives records their event times and derives the watermark of each origin."""

    def __init__(
        self, time_of: Callable[[Any], int], options: EventTimeOptions, warned: set[str]
    ) -> None:
        self.options = options
        self._warned = warned
        """The operators whose times may be seconds, in all subtasks."""
        self._time_of = time_of
        self._origin: Origin | None = None
        self._latest: dict[Origin, int] = {}
        self._active = False

    def open(self, context: OperatorContext) -> None:
        self._name = context.operator

    def read_from(self, origin: Origin | None) -> None:
        """The buffers that follow are of this origin; None: of an unknown one, which moves none."""
        self._origin = origin

    def process(self, batch: Batch) -> Iterable[Batch]:
        times = map_all(self._time_of, batch.records)
        newest = _newest(times)
        self._active = True
        if self._origin is not None:
            latest = self._latest.get(self._origin)
            if latest is None and newest in _SECONDS:
                self._warn(newest)
            self._latest[self._origin] = newest if latest is None else max(latest, newest)
        return (Batch(batch.records, times),)

    def _warn(self, time: int) -> None:
        if self._name not in self._warned:
            self._warned.add(self._name)
            year = 1970 + time // _YEAR_MS
            Event.TIMES_IN_SECONDS.log(logger, operator=self._name, time=time, year=year)

    def was_active(self) -> bool:
        """Whether records came since the last call: earlier operators may filter out all."""
        active, self._active = self._active, False
        return active

    def latest(self, origin: Origin) -> int | None:
        return self._latest.get(origin)

    def restore(self, origin: Origin, latest: int) -> None:
        """Set the greatest event time seen in an origin before a restart."""
        self._latest[origin] = latest

    def forget(self, origin: Origin) -> None:
        self._latest.pop(origin, None)

    def watermark_of(self, origin: Origin) -> int | None:
        """The watermark of an origin: later records of it have greater times; None: not known."""
        latest = self._latest.get(origin)
        return None if latest is None else self._watermark(latest)

    @property
    def watermarks(self) -> dict[Origin, int]:
        """The watermark of every origin that had records."""
        return {origin: self._watermark(latest) for origin, latest in self._latest.items()}

    def _watermark(self, latest: int) -> int:
        """The watermark after a greatest event time."""
        return max(latest - self.options.max_delay_ms - 1, UNKNOWN)


def _newest(times: list[Any]) -> int:
    """The greatest of these; raises UserFunctionError where one is no int, or too far from 1970."""
    with suppress(TypeError):
        # Nothing but ints adds up to an int, and one that is too low makes the sum so, unless
        # others are no dates either: to look for the least of all each time would cost more.
        total = sum(times)
        high_enough = total >= -LATEST or min(times) >= -LATEST
        if isinstance(total, int) and high_enough and (newest := max(times)) <= LATEST:
            return int(newest)
    wrong = next(t for t in times if not isinstance(t, int) or abs(t) > LATEST)
    raise UserFunctionError(
        "the time function",
        expected="event times in milliseconds as int, -2**62 to 2**62",
        found=value_text(wrong) + (f" of type {type(wrong).__name__}" if shows_records() else ""),
        action=f"return {_in_milliseconds(wrong)}, which is in milliseconds since 1970",
    )


def _in_milliseconds(time: object) -> str:
    """The code that makes an event time of a value."""
    if isinstance(time, datetime):
        return "int(time.timestamp() * 1000)"
    if isinstance(time, str):
        return "int(datetime.fromisoformat(text).timestamp() * 1000)"
    return "int(seconds * 1000)" if isinstance(time, float) else "an int"
