"""Event-time windows: tumbling and sliding, aggregated or with the records kept.

Invariants: a record belongs to every window whose span [start, start + size) holds its time; a
window fires once, when the watermark passes its end, and leaves no state; records of which all
windows fired are late: dropped, or sent to a side output. A kept record is appended blindly: one
small row, never a rewrite.
"""

from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any, cast

import msgspec

from tidelog.changelog.change import prefix_end
from tidelog.errors import ConfigError
from tidelog.runtime.channels.messages import Batch, KeyedBatch, SideBatch
from tidelog.runtime.operators.operator import (
    TIMERS_PER_STEP,
    Operator,
    OperatorContext,
)
from tidelog.runtime.operators.turn import PAUSE, REST, Outputs
from tidelog.runtime.user_code import blame
from tidelog.state.appending import append
from tidelog.state.event_time import EventTime
from tidelog.state.handles.timers import Timers
from tidelog.state.key_groups import decode_key
from tidelog.state.registry import Definition
from tidelog.state.schema.types import ValueTypes

_TIME_BYTES = 8
_BIAS = 1 << 63

Combine = Callable[[Any, Any], Any]


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

    def starts(self, time_ms: int) -> range:
        """Starts of the windows that hold a time, newest first."""
        newest = time_ms - time_ms % self.slide_ms
        return range(newest, time_ms - self.size_ms, -self.slide_ms)


class _Window(Operator):
    """Assigns records to windows and fires them; subclasses hold the state."""

    kind: str
    """The kind of the state."""
    value_option: str
    """The option that declares the types of the stored values."""

    def __init__(self, span: WindowSpan, late: str | None) -> None:
        self._span = span
        self._late = late
        self.late_records = 0

    @classmethod
    def state(cls, span: WindowSpan) -> Definition:
        """The state of windows of this span."""
        # Stored rows know their windows' starts alone: another span would misread them.
        text = f"size {span.size_ms} ms, slide {span.slide_ms} ms"
        return "windows", cls.kind, ("msgpack", text)

    def open(self, context: OperatorContext) -> None:
        self._backend = context.backend
        self._turn = context.turn
        self._timers = Timers(context.backend, "windows")
        registry = context.backend.registry
        info = registry.register(*self.state(self._span))
        self._state = info.id.to_bytes(2, "big")
        decode = msgspec.msgpack.Decoder().decode
        encode = msgspec.msgpack.Encoder().encode
        self._types = ValueTypes(registry.value_types(info, self.value_option))
        self._rows = context.backend.rows(info, encode, decode, scanned=True, observe=self._observe)

    def process(self, batch: Batch) -> Iterable[Batch]:
        keyed = cast(KeyedBatch, batch)
        if keyed.times is None:
            raise ConfigError(
                "window on a stream without event time",
                action="call .event_time(...) before .key_by(...)",
            )
        on_time, late = self._divided(keyed)
        for (group, key, start), records in on_time.items():
            self._backend.key_prefix, self._backend.key = group, key
            self._add(group + self._state + key + _encoded(start), records)
            self._timers.register(start + self._span.size_ms - 1)
        self.late_records += len(late.records)
        return () if self._late is None else (late,)

    def _divided(
        self, batch: KeyedBatch
    ) -> tuple[dict[tuple[bytes, bytes, int], list[Any]], SideBatch]:
        """(records by key group, key and start of each window that has not fired; late records)."""
        starts_of, size = self._span.starts, self._span.size_ms
        event_time = self._backend.event_time
        passed, ahead = event_time.watermark, event_time.ahead
        assigned: dict[tuple[bytes, bytes, int], list[Any]] = defaultdict(list)
        late, times = list[Any](), list[int]()
        assert batch.times is not None
        fields = zip(batch.groups, batch.keys, batch.times, batch.records, strict=True)
        for group, key, time, record in fields:
            on_time = False
            if ahead:
                passed = event_time.of(group)
            for start in starts_of(time):
                if start + size - 1 <= passed:
                    break
                on_time = True
                assigned[group, key, start].append(record)
            if not on_time:
                late.append(record)
                times.append(time)
        return assigned, SideBatch(late, times, self._late or "")

    def watermark(self, time: int) -> Iterable[Batch]:
        self._backend.event_time.advance(time)
        return self._fire(self._backend.event_time)

    def _fire(self, event_time: EventTime) -> Iterator[Batch]:
        outputs = Outputs(self._turn)
        fired = 0
        for time, key in self._timers.expired(event_time.watermark, event_time.ahead):
            self._backend.use_encoded_key(key)
            start = time - self._span.size_ms + 1
            row = self._backend.key_prefix + self._state + key + _encoded(start)
            taken = yield from self._take(row, decode_key(key), start)
            outputs.records.append(taken)
            self._timers.delete(time)
            fired += 1
            if fired == TIMERS_PER_STEP or outputs.due:
                yield outputs.cut()
                yield PAUSE
                fired = 0
        if outputs.records:
            yield outputs.cut()

    def _observe(self, held: list[Any]) -> None:
        self._types.observe(held)

    def _add(self, row: bytes, records: list[Any]) -> None:
        raise NotImplementedError

    def _take(self, row: bytes, key: Any, start: int) -> Generator[Batch, None, Any]:
        """The output of a window, which leaves no state; yields only `REST`."""
        raise NotImplementedError


class AggregateWindow(_Window):
    """Combines a value of every record; emits (key, window start, value)."""

    kind = "window-aggregate"
    value_option = "window(..., value_type=...)"

    def __init__(
        self,
        span: WindowSpan,
        value_of: Callable[[Any], Any],
        combine: Combine,
        late: str | None = None,
    ) -> None:
        super().__init__(span, late)
        self._value_of = value_of
        self._combine = combine

    def _add(self, row: bytes, records: list[Any]) -> None:
        value = reduce(self._combine, map(self._value_of, records))
        before = self._rows.get(row)
        try:
            combined = value if before is None else self._combine(before, value)
        except Exception:
            # A value of a changed type often cannot be combined with the one that is stored.
            self._types.observe([value])
            raise
        self._rows.put(row, combined)

    def _take(self, row: bytes, key: Any, start: int) -> Generator[Batch, None, Any]:
        yield from ()
        value = self._rows.get(row)
        self._rows.delete(row)
        return key, start, value


class RecordsWindow(_Window):
    """Keeps the records; emits what a function makes of (key, window start, records)."""

    kind = "window-records"
    value_option = "window_records(..., record_type=...)"

    def __init__(
        self,
        span: WindowSpan,
        function: Callable[[Any, int, list[Any]], Any],
        late: str | None = None,
    ) -> None:
        super().__init__(span, late)
        self._function = function

    def _observe(self, held: list[Any]) -> None:
        self._types.observe(
            [record for records in held if records is not None for record in records]
        )

    def _add(self, row: bytes, records: list[Any]) -> None:
        append(self._backend, self._rows, row, records)

    def _take(self, row: bytes, key: Any, start: int) -> Generator[Batch, None, Any]:
        records: list[Any] = []
        parts: list[bytes] = []
        for part, held in self._rows.scan(row, prefix_end(row)):
            records += held
            parts.append(part)
            if self._turn.over():
                yield REST
        for part in parts:
            self._rows.delete(part)
        with blame("window function"):
            return self._function(key, start, records)


def _encoded(start: int) -> bytes:
    return (start + _BIAS).to_bytes(_TIME_BYTES, "big")
