"""User functions with state: names and semantics of Spark's `StatefulProcessor` (4.3).

Invariants: states are created in `init` only; every call of a handler has a current key; a
class written against these names runs in `transformWithState` unchanged.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

from tidelog.errors import ConfigError, StateDefinitionError, require
from tidelog.state.backend import KeyedBackend
from tidelog.state.event_time import MAX_WATERMARK, UNKNOWN
from tidelog.state.handles.keyed import (
    AggregatingState,
    ListHandle,
    MapHandle,
    ReducingState,
    ValueHandle,
)
from tidelog.state.handles.timers import Timers
from tidelog.state.schema.row import Row
from tidelog.state.schema.schema import Schema

In = TypeVar("In")
Out = TypeVar("Out")
H = TypeVar("H", ValueHandle, ListHandle, MapHandle)
Migrate = Callable[[Row], tuple[Any, ...]]
TimeMode = Literal["none", "processing", "event"]
_MISSPELT: Final = 0.85
"""How alike two names are, from 0 to 1, of which one was meant to be the other."""
_LONGEST_TTL_MS: Final = 10**15
"""The time of expiry has 64 bits."""


@dataclass(frozen=True, slots=True)
class TimerValues:
    """Times of the batch being processed, in milliseconds; -1 when unknown."""

    currentProcessingTimeInMs: int = -1
    currentWatermarkInMs: int = -1

    def getCurrentProcessingTimeInMs(self) -> int:
        return self.currentProcessingTimeInMs

    def getCurrentWatermarkInMs(self) -> int:
        return self.currentWatermarkInMs


@dataclass(frozen=True, slots=True)
class ExpiredTimerInfo:
    """The timer that fired."""

    expiryTimeInMs: int = -1

    def getExpiryTimeInMs(self) -> int:
        """The time it was registered for, in milliseconds."""
        return self.expiryTimeInMs


def created_late(state: str) -> StateDefinitionError:
    """A state was asked for after `init`."""
    return StateDefinitionError(
        f"state {state!r}",
        expected="to be created within init(handle)",
        found="a call after it",
        action="create it in init and keep it in an attribute",
    )


class StatefulProcessorHandle:
    """What a processor gets in `init`: its states and its timers."""

    def __init__(self, backend: KeyedBackend, time_mode: TimeMode) -> None:
        self._backend = backend
        self._time_mode = time_mode
        self._states: dict[str, ValueHandle | ListHandle | MapHandle] = {}
        self._initializing = True
        self._buffered = backend.buffered
        self.timers = Timers(backend) if time_mode != "none" else None
        self.fires_at: int | None = None
        """While a timer fires: event time as its handler sees it. None: it is that of the task."""
        self.fired: int | None = None
        """While a timer of event time fires: its own time, after which others may follow."""
        self.unfired_timers = 0
        """Timers that were registered at the end of the data."""

    def initialized(self) -> None:
        """Called by the runtime after `init`; raises StateDefinitionError where that put rows."""
        self._initializing = False
        if self._backend.buffered and not self._buffered:
            raise StateDefinitionError(
                "init(handle)",
                expected="to create states only",
                found="a change of a state or a timer, which belong to a key",
                action="make it in handleInputRows, as where the state of a key is None",
            )

    def getValueState(
        self,
        stateName: str,
        schema: Schema,
        ttlDurationMs: int | None = None,
        *,
        migrate: Migrate | None = None,
    ) -> ValueHandle:
        """A value state; only within `init`.

        `migrate`, here and in the methods below, is for a schema that is not the stored one: it
        gets each stored value as a `Row` with the stored field names, and returns the new tuple.
        """
        return self._new(ValueHandle, stateName, schema, ttl_ms=ttlDurationMs, migrate=migrate)

    def getListState(
        self,
        stateName: str,
        schema: Schema,
        ttlDurationMs: int | None = None,
        *,
        migrate: Migrate | None = None,
    ) -> ListHandle:
        """A list state; only within `init`. `migrate` gets one element."""
        return self._new(ListHandle, stateName, schema, ttl_ms=ttlDurationMs, migrate=migrate)

    def getMapState(
        self,
        stateName: str,
        userKeySchema: Schema,
        valueSchema: Schema,
        ttlDurationMs: int | None = None,
        *,
        migrate: Migrate | None = None,
    ) -> MapHandle:
        """A map state; only within `init`. `migrate` gets the value of an entry, not its key."""
        schemas = userKeySchema, valueSchema
        return self._new(MapHandle, stateName, *schemas, ttl_ms=ttlDurationMs, migrate=migrate)

    def getReducingState(
        self,
        stateName: str,
        schema: Schema,
        reduce: Callable[[tuple[Any, ...], tuple[Any, ...]], tuple[Any, ...]],
        ttlDurationMs: int | None = None,
        *,
        migrate: Migrate | None = None,
    ) -> ReducingState:
        """A reducing state, which Spark lacks; only within `init`."""
        value = self.getValueState(stateName, schema, ttlDurationMs, migrate=migrate)
        return ReducingState(value, reduce)

    def getAggregatingState(
        self,
        stateName: str,
        schema: Schema,
        *,
        create: Callable[[], tuple[Any, ...]],
        add: Callable[[tuple[Any, ...], In], tuple[Any, ...]],
        result: Callable[[tuple[Any, ...]], Out],
        ttlDurationMs: int | None = None,
        migrate: Migrate | None = None,
    ) -> AggregatingState[In, Out]:
        """An aggregating state, which Spark lacks; only within `init`."""
        value = self.getValueState(stateName, schema, ttlDurationMs, migrate=migrate)
        return AggregatingState(value, create=create, add=add, result=result)

    def registerTimer(self, expiryTimestampMs: int) -> None:
        """Fire `handleExpiredTimer` for the current key at this time, in event time one after the
        watermark; in `handleExpiredTimer` one after the timer's, though event time may be there.

        At the end of the data, when the watermark is 2**63 - 1, it is counted and does not fire.
        """
        watermark = self.watermark
        if self._time_mode == "event" and watermark == MAX_WATERMARK and not self._initializing:
            self.unfired_timers += 1
            return
        timers = self._timers("registerTimer", expiryTimestampMs)
        if self._initializing:
            raise ConfigError(
                "registerTimer in init(handle)",
                expected="a call in a handler, for its key",
                found="no key yet",
                action="register it in handleInputRows",
            )
        earlier = watermark if self.fired is None else self.fired
        if self._time_mode == "event" and expiryTimestampMs <= earlier:
            what = "the watermark" if self.fired is None else "that of the timer that fires,"
            raise ConfigError(
                f"registerTimer({expiryTimestampMs})",
                expected=f"a time after {what} {earlier}",
                found="an earlier one" if expiryTimestampMs < earlier else "that time itself",
                action="register a later time, or handle the key at once",
            )
        timers.register(expiryTimestampMs)

    @property
    def watermark(self) -> int:
        """Event time as the handlers of the current key see it."""
        if self.fires_at is not None:
            return self.fires_at
        return self._backend.event_time.of(self._backend.key_prefix)

    def deleteTimer(self, expiryTimestampMs: int) -> None:
        """Remove a timer of the current key."""
        self._timers("deleteTimer", expiryTimestampMs).delete(expiryTimestampMs)

    def listTimers(self) -> Iterator[int]:
        """Times of the current key's timers."""
        return self._timers("listTimers").list()

    def deleteIfExists(self, stateName: str) -> None:
        """Remove the state variable and the current key's value of it, if it was defined."""
        state = self._states.pop(stateName, None)
        if state is not None and self._backend.key:
            state.clear()

    def _new(
        self,
        handle: Callable[..., H],
        name: str,
        *schemas: Schema,
        ttl_ms: int | None,
        migrate: Migrate | None,
    ) -> H:
        if not self._initializing:
            raise created_late(name)
        if name in self._states or name.startswith("$"):
            raise StateDefinitionError(
                f"state {name!r}",
                expected="a name of its own that does not start with '$'",
                found="a name that is taken or reserved",
                action="rename it",
            )
        lives = ttl_ms is None or (type(ttl_ms) is int and 0 < ttl_ms <= _LONGEST_TTL_MS)
        expected = f"milliseconds as int, 1 to {_LONGEST_TTL_MS}, or None: it never expires"
        require(f"TTL of state {name!r}", repr(ttl_ms), lives, expected)
        is_function = migrate is None or callable(migrate)
        expected = "a function from a stored value to one of the schema"
        require(f"migrate= of state {name!r}", repr(migrate), is_function, expected)
        state = handle(self._backend, name, *schemas, ttl_ms, migrate=migrate)
        self._states[name] = state
        return state

    def _timers(self, call: str, time: int = 0) -> Timers:
        if self.timers is None:
            raise ConfigError(
                f"{call} in an operator without timers",
                expected="time mode 'processing' or 'event'",
                found="'none'",
                action="pass time_mode= to transform_with_state",
            )
        if not (isinstance(time, int) and UNKNOWN <= time <= MAX_WATERMARK):
            raise ConfigError(
                f"{call}(...)",
                expected="milliseconds as int, of 64 bits",
                found=repr(time),
                action="pass such a time",
            )
        return self.timers


class StatefulProcessor(ABC):
    """Arbitrary stateful logic per key.

    A class that misspells the name of a method, which nothing would call, cannot be defined: this
    raises ConfigError.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        from difflib import get_close_matches  # noqa: PLC0415  # few jobs have a processor

        inherited = [
            name
            for name, method in vars(StatefulProcessor).items()
            if not name.startswith("_") and getattr(cls, name) is method
        ]
        for name in vars(cls):
            for method in get_close_matches(name, inherited, n=1, cutoff=_MISSPELT):
                require(f"a method of the processor {cls.__name__}", name, name == method, method)

    @abstractmethod
    def init(self, handle: StatefulProcessorHandle) -> None:
        """Create the states; called once per subtask before any data."""

    @abstractmethod
    def handleInputRows(
        self, key: tuple[Any, ...], rows: Iterator[Row], timerValues: TimerValues
    ) -> Iterator[Row]:
        """Handle some rows of one key, in order; yields output rows."""

    def handleExpiredTimer(
        self, key: tuple[Any, ...], timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[Row]:
        """Handle a timer of a key; the timer is removed afterwards."""
        return iter(())

    def close(self) -> None:
        """Called once at the end of a subtask, also after a failure."""

    def handleInitialState(
        self, key: tuple[Any, ...], initialState: Row, timerValues: TimerValues
    ) -> None:
        """Seed the state of a key from an earlier system; only before the first input."""
