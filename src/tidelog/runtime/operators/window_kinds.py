"""The kinds of windows: what a user passes to `window`, and the operators that they become."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from operator import iadd
from typing import Any, ClassVar, cast

from tidelog.errors import ConfigError, require
from tidelog.options.units import Length, milliseconds
from tidelog.runtime.channels.messages import Batch, KeyedBatch
from tidelog.runtime.operators.answers import Combining
from tidelog.runtime.operators.operator import OperatorContext
from tidelog.runtime.operators.overlaps import Combine
from tidelog.runtime.operators.spans import ONCE, Firing, WindowSpan, warn_of_many
from tidelog.runtime.operators.stateless import Finished
from tidelog.runtime.operators.tumbling_window import aggregate_window
from tidelog.runtime.operators.window import AggregateWindow, RecordsWindow
from tidelog.runtime.streams.reductions import Keyed
from tidelog.runtime.user_code import map_all
from tidelog.state.key_groups import decode_key
from tidelog.state.objects.values import UntypedValues
from tidelog.state.registry import Definition

# Operators that few jobs have are imported where a job asks for one.


class Windows(ABC):
    """A kind of windows: Tumbling, Sliding, Session or Count."""

    by_event_time: ClassVar[bool] = True

    @abstractmethod
    def aggregate(self, value_of: Callable[[Any], Any], combine: Combine, firing: Firing) -> Keyed:
        """The operator that combines a value of every record; raises ConfigError where windows of
        this kind cannot fire like this.
        """

    @abstractmethod
    def records(self, function: Callable[..., Any], firing: Firing) -> Keyed:
        """The operator that keeps the records for a function. Raises as `aggregate`."""


class _Spans(Windows):
    """Windows of a fixed span of event time."""

    size: Length
    slide: Length

    @property
    def span(self) -> WindowSpan:
        """Size and slide; raises ConfigError for lengths that cannot be."""
        return WindowSpan(
            milliseconds("the size of a window", self.size),
            milliseconds("the slide of a window", self.slide),
        )

    def __post_init__(self) -> None:
        self.span  # noqa: B018  # checks it

    def aggregate(self, value_of: Callable[[Any], Any], combine: Combine, firing: Firing) -> Keyed:
        self._warn(firing)
        operator = partial(aggregate_window, self.span, value_of, combine, firing)
        return operator, AggregateWindow.state(self.span)

    def records(self, function: Callable[..., Any], firing: Firing) -> Keyed:
        self._warn(firing)
        operator = partial(RecordsWindow, self.span, function, firing)
        return operator, RecordsWindow.state(self.span)

    def _warn(self, firing: Firing) -> None:
        if firing.updates:
            warn_of_many(self.span, "emit='updates' emits the window")


@dataclass(frozen=True)
class Tumbling(_Spans):
    """Windows of event time, one after the other; they start at multiples of `size` since 1970.

    A length of time is milliseconds, a `timedelta` or a text such as `30s` or `1m`. Emits
    (key, window start, value). Raises ConfigError for lengths that cannot be.
    """

    size: Length

    @property
    def slide(self) -> Length:  # type: ignore[override]
        return self.size


@dataclass(frozen=True)
class Sliding(_Spans):
    """Windows of event time that overlap: one of `size` starts at every multiple of `slide`.

    Lengths and output are those of `Tumbling`.
    """

    size: Length
    slide: Length


@dataclass(frozen=True)
class Session(Windows):
    """The records of a key without a pause in event time that is longer than `gap`.

    Emits (key, start, end, value), where the end is the time of the last record plus the gap.
    """

    gap: Length

    def __post_init__(self) -> None:
        require("the gap of a session", self.gap, self.gap_ms > 0, "more than 0")

    @property
    def gap_ms(self) -> int:
        return milliseconds("the gap of a session", self.gap)

    def aggregate(self, value_of: Callable[[Any], Any], combine: Combine, firing: Firing) -> Keyed:
        from tidelog.runtime.operators.session_window import AggregateSessions  # noqa: PLC0415

        return partial(AggregateSessions, self.gap_ms, value_of, combine, firing), None

    def records(self, function: Callable[..., Any], firing: Firing) -> Keyed:
        from tidelog.runtime.operators.session_records import RecordsSessions  # noqa: PLC0415

        return partial(RecordsSessions, self.gap_ms, function, firing), None


@dataclass(frozen=True)
class Count(Windows):
    """Every `size` records of a key, in the order in which they come; event time is not needed.

    Emits (key, value) with the last record of a window. As in Flink's `countWindow`, what is left
    at the end of the data is never emitted.
    """

    by_event_time: ClassVar[bool] = False
    size: int

    def __post_init__(self) -> None:
        fits = isinstance(self.size, int) and self.size >= 1
        require("the size of a count window", repr(self.size), fits, "an int, 1 or more")

    def aggregate(self, value_of: Callable[[Any], Any], combine: Combine, firing: Firing) -> Keyed:
        if firing != ONCE:
            raise ConfigError(
                "a count window",
                expected="neither allowed_lateness= nor late= nor emit=: it has no event time",
                found=str(firing),
                action="leave them out, or use Tumbling, Sliding or Session",
            )
        return partial(_CountWindow, self.size, value_of, combine), _CountWindow.state

    def records(self, function: Callable[..., Any], firing: Firing) -> Keyed:
        operator, state = self.aggregate(lambda record: [record], iadd, firing)
        return lambda: Finished(operator(), lambda window: function(*window)), state


_VALUE, _COUNT = 0, 1
"""Indexes of the parts of the row of a count window."""


class _CountWindow(Combining):
    """A key has one row: the value and the number of its records since the last window."""

    state = Definition("count-windows", "count-window", ("msgpack",))
    value_option = "aggregate(..., value_type=...)"

    def __init__(self, size: int, value_of: Callable[[Any], Any], combine: Combine) -> None:
        self._size = size
        self._value_of = value_of
        self._combine = combine

    def open(self, context: OperatorContext) -> None:
        self._values = UntypedValues(
            context.backend, self.state, self.value_option, elements=slice(0, 1)
        )
        self._rows = self._values.rows()
        self._look(context.operator, self._values)

    def process(self, batch: Batch) -> Iterable[Batch]:
        keyed = cast(KeyedBatch, batch)
        values = map_all(self._value_of, keyed.records)
        self._values.check_first(values)
        rows = keyed.row_keys(self._values.prefix)
        windows = dict(zip(rows, self._rows.get_many(rows), strict=True))
        full: list[tuple[Any, Any]] = []
        for row, key, value in zip(rows, keyed.keys, values, strict=True):
            window = windows[row]
            if window is None:
                window = windows[row] = [value, 1]
            else:
                window[_VALUE] = self._combined(window[_VALUE], value)
                window[_COUNT] += 1
            if window[_COUNT] >= self._size:
                if window[_VALUE] is not None:
                    full.append((decode_key(key), window[_VALUE]))
                windows[row] = None
        self._rows.put_many(windows)
        self._values.check_new([value for _, value in full])
        return (Batch(full),) if full else ()
