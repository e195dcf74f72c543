"""The operator of a user's `StatefulProcessor`: rows by key, timers, late records set aside.

Invariants: the timers of a key that are due fire before its rows are handled; its handlers never
see event time go back, and a timer may register any later one, however far event time is by now.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Final, cast
from weakref import WeakValueDictionary

from tidelog.credentials import value_text
from tidelog.errors import require
from tidelog.events import Event
from tidelog.runtime.channels.messages import Batch, KeyedBatch
from tidelog.runtime.operators.operator import (
    TIMERS_PER_STEP,
    Operator,
    OperatorContext,
    event_times,
)
from tidelog.runtime.operators.outputs import Outputs
from tidelog.runtime.operators.portion import Portion
from tidelog.runtime.operators.spans import has_passed
from tidelog.runtime.operators.turn import PAUSE
from tidelog.runtime.user_code import named_call, user_code
from tidelog.state.event_time import MAX_WATERMARK, UNKNOWN
from tidelog.state.handles.timers import NONE_AHEAD
from tidelog.state.key_groups import decode_key
from tidelog.state.processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimeMode,
    TimerValues,
)

logger = logging.getLogger(__name__)

_ROWS_AT_ONCE: Final = 256
"""The most rows of a key that a handler gets at a time: how long it takes may change at once."""
_OPEN: Final[WeakValueDictionary[int, StatefulProcessor]] = WeakValueDictionary()
"""The processors that are open, by their ids: each has the states of one subtask."""


class Process(Operator):
    """Gives the rows of each key in a buffer to the handler, in pieces, and fires timers."""

    divisible = False

    def __init__(
        self, processor: StatefulProcessor, time_mode: TimeMode, late: str | None = None
    ) -> None:
        self._processor = processor
        self._late = late
        self._time_mode = time_mode
        self._fired_to = UNKNOWN
        """Up to here all timers have fired."""
        self._limit = UNKNOWN
        """Up to here they fire."""
        self._lags = False
        """Event time has passed the limit of the timers that fire: each sees its own time."""

    def open(self, context: OperatorContext) -> None:
        self._context = context
        self._backend = context.backend
        self._handle = StatefulProcessorHandle(context.backend, self._time_mode)
        self._name = type(self._processor).__name__
        self._portion = Portion(_ROWS_AT_ONCE)
        is_new = id(self._processor) not in _OPEN
        expected = "a class, or a function that makes a new object each time"
        require(f"the processor {self._name}", "one object for several subtasks", is_new, expected)
        with user_code(f"{self._name}.init"):
            self._processor.init(self._handle)
        self._handle.initialized()
        _OPEN[id(self._processor)] = self._processor

    def process(self, batch: Batch) -> Iterable[Batch]:
        keyed, late = cast(KeyedBatch, batch), None
        if keyed.side:
            return self._begin(keyed)
        if self._time_mode == "event":
            times = event_times(keyed)
            event_time = self._backend.event_time
            keyed, late = self._on_time(keyed, times, event_time, has_passed, self._late)
        rows_of: dict[bytes, list[Any]] = {}
        group_of: dict[bytes, bytes] = {}
        for group, key, record in zip(keyed.groups, keyed.keys, keyed.records, strict=True):
            rows = rows_of.get(key)
            if rows is None:
                rows_of[key] = [record]
                group_of[key] = group
            else:
                rows.append(record)
        handled = self._handled(rows_of, group_of)
        # The rows count as handled when this returns, unless they make more than one buffer.
        first = next(handled, None)
        produced = () if first is None else chain((first,), handled)
        return produced if late is None else chain((late,), produced)

    def _begin(self, keyed: KeyedBatch) -> Iterable[Batch]:
        """Give rows of another system to the processor, which gets no other records meanwhile."""
        backend, times = self._backend, self._times()
        with self._handler("handleInitialState"):
            for group, key, row in zip(keyed.groups, keyed.keys, keyed.records, strict=True):
                backend.key, backend.key_prefix = key, group
                user_key = _as_tuple(decode_key(key))
                self._processor.handleInitialState(user_key, row, times)
        return ()

    def _handled(
        self, rows_of: dict[bytes, list[Any]], group_of: dict[bytes, bytes]
    ) -> Iterator[Batch]:
        outputs, now = Outputs(self._context.turn), self._context.turn.now
        backend, handle = self._backend, self._processor.handleInputRows
        ahead, times = backend.event_time.ahead, self._times()
        firing = self._due_to() > self._fired_to
        with self._handler("handleInputRows"):
            for key, rows in rows_of.items():
                backend.key, backend.key_prefix = key, group_of[key]
                if firing:
                    yield from self._fire_key(key, outputs)
                if ahead:
                    times = self._times()
                user_key = _as_tuple(decode_key(key))
                for piece in self._pieces(rows):
                    seconds, since = 0.0, now()
                    rows_out = handle(user_key, iter(piece), times)
                    for output in outputs.take(() if rows_out is None else rows_out):
                        seconds += now() - since
                        yield output
                        since = now()
                    self._portion.took(len(piece), seconds + now() - since)
        yield from outputs.rest()

    def _pieces(self, rows: list[Any]) -> Iterator[list[Any]]:
        """The rows of a key in order, few at a time: nothing can interrupt a handler."""
        if len(rows) == 1:
            yield rows
            return
        for piece in self._portion.pieces(Batch(rows), self._context.turn):
            yield piece.records

    def watermark(self, time: int) -> Iterable[Batch]:
        event_time = self._backend.event_time
        self._lags = event_time.watermark >= time
        event_time.advance(time)
        if self._time_mode != "event":
            return ()
        return self._fire(time, event_time.ahead)

    def _due_to(self) -> int:
        """Up to where timers are due."""
        return self._backend.event_time.watermark if self._time_mode == "event" else self._limit

    def _fire_key(self, key: bytes, outputs: Outputs) -> Iterator[Batch]:
        """Fire what is due of the current key, before its turn comes."""
        timers, limit = self._handle.timers, self._due_to()
        assert timers is not None
        due = timers.due(limit)
        if self._time_mode == "event":  # with those that are registered meanwhile
            due = iter(lambda: next(timers.due(limit), None), None)
        for time in due:
            yield from self._fire_timer(time, key, outputs)

    def tick(self, now_ms: int) -> Iterable[Batch]:
        return self._fire(now_ms) if self._time_mode == "processing" else ()

    @property
    def unfired_timers(self) -> int:  # type: ignore[override]
        return self._handle.unfired_timers

    def close(self) -> None:
        _OPEN.pop(id(self._processor), None)
        self._processor.close()

    def _fire(self, limit_ms: int, ahead: Mapping[int, int] = NONE_AHEAD) -> Iterator[Batch]:
        timers = self._handle.timers
        assert timers is not None
        outputs = Outputs(self._context.turn)
        fired, unfired_before, self._limit = 0, self.unfired_timers, limit_ms
        in_turn = timers.expired_in_turn if self._time_mode == "event" else timers.expired
        for time, key in in_turn(limit_ms, ahead):
            self._backend.use_encoded_key(key)
            for batch in self._fire_timer(time, key, outputs):
                # When this resumes a new turn has begun, so `due` may be false: pause anyway.
                fired = TIMERS_PER_STEP
                yield batch
            fired += 1
            if fired >= TIMERS_PER_STEP or outputs.due:
                yield outputs.cut()
                yield PAUSE
                fired = 0
        self._fired_to = limit_ms
        yield from outputs.rest()
        if unfired := self.unfired_timers - unfired_before:
            Event.TIMERS_NOT_FIRED.log(logger, operator=self._context.operator, timers=unfired)

    def _fire_timer(self, time: int, key: bytes, outputs: Outputs) -> Iterator[Batch]:
        handle = self._handle
        assert handle.timers is not None
        if self._time_mode == "event":
            at_once = time <= self._limit and not (self._lags and self._limit < MAX_WATERMARK)
            handle.fires_at, handle.fired = self._limit if at_once else time, time
        with self._handler("handleExpiredTimer"):
            expire, user_key = self._processor.handleExpiredTimer, _as_tuple(decode_key(key))
            rows = expire(user_key, self._times(), ExpiredTimerInfo(time))
            yield from outputs.take(rows or ())
        handle.fires_at = handle.fired = None
        handle.timers.delete(time)

    def _handler(self, name: str) -> named_call:
        """A call of a handler for the current key."""
        return named_call(
            f"{self._name}.{name}", lambda: f"key {value_text(decode_key(self._backend.key))}"
        )

    def _times(self) -> TimerValues:
        watermark = self._handle.watermark
        return TimerValues(self._context.clock.now_ms(), -1 if watermark == UNKNOWN else watermark)


def _as_tuple(key: Any) -> tuple[Any, ...]:
    return key if isinstance(key, tuple) else (key,)
