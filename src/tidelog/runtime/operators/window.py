"""Event-time windows: tumbling and sliding, aggregated or with the records kept.

Invariants: a record belongs to every window whose span [start, start + size) holds its time; a
window fires once, when the watermark passes its end, and leaves no state; records of windows that
fired are late and dropped. A kept record is appended blindly: one small row, never a rewrite.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any, cast

import msgspec

from tidelog.changelog.change import prefix_end
from tidelog.errors import ConfigError
from tidelog.runtime.blame import blame
from tidelog.runtime.channels.messages import Batch, KeyedBatch
from tidelog.runtime.operators.operator import (
    OUTPUT_RECORDS,
    TIMERS_PER_STEP,
    Operator,
    OperatorContext,
)
from tidelog.state.key_groups import decode_key
from tidelog.state.timers import Timers

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

    def __init__(self, span: WindowSpan) -> None:
        self._span = span
        self._watermark = -1
        self.late_records = 0

    def open(self, context: OperatorContext) -> None:
        self._backend = context.backend
        self._timers = Timers(context.backend, "windows")
        registry = context.backend.registry
        # Stored rows know their windows' starts alone: another span would misread them.
        span = f"size {self._span.size_ms} ms, slide {self._span.slide_ms} ms"
        info = registry.register("windows", self._kind(), ("msgpack", span))
        self._state = info.id.to_bytes(2, "big")
        decode = msgspec.msgpack.Decoder().decode
        encode = msgspec.msgpack.Encoder().encode
        self._rows = context.backend.rows(info, encode, decode, scanned=True)

    def process(self, batch: Batch) -> Iterable[Batch]:
        keyed = cast(KeyedBatch, batch)
        if keyed.times is None:
            raise ConfigError(
                "window on a stream without event time",
                action="call .event_time(...) before .key_by(...)",
            )
        for (group, key, start), records in self._on_time(keyed).items():
            self._backend.key_prefix, self._backend.key = group, key
            self._add(group + self._state + key + _encoded(start), records)
            self._timers.register(start + self._span.size_ms - 1)
        return ()

    def _on_time(self, batch: KeyedBatch) -> dict[tuple[bytes, bytes, int], list[Any]]:
        """The records of every key and window that has not fired yet."""
        starts_of, fired = self._span.starts, self._watermark - self._span.size_ms + 1
        assigned: dict[tuple[bytes, bytes, int], list[Any]] = defaultdict(list)
        assert batch.times is not None
        fields = zip(batch.groups, batch.keys, batch.times, batch.records, strict=True)
        for group, key, time, record in fields:
            on_time = False
            for start in starts_of(time):
                if start <= fired:
                    break
                on_time = True
                assigned[group, key, start].append(record)
            self.late_records += not on_time
        return assigned

    def watermark(self, time: int) -> Iterable[Batch]:
        self._watermark = max(self._watermark, time)
        return self._fire()

    def _fire(self) -> Iterator[Batch]:
        outputs: list[Any] = []
        fired = 0
        for time, key in self._timers.expired(self._watermark):
            self._backend.use_encoded_key(key)
            start = time - self._span.size_ms + 1
            row = self._backend.key_prefix + self._state + key + _encoded(start)
            outputs.append(self._take(row, decode_key(key), start))
            self._timers.delete(time)
            fired += 1
            if len(outputs) >= OUTPUT_RECORDS or fired == TIMERS_PER_STEP:
                yield Batch(outputs)
                outputs, fired = [], 0
        if outputs:
            yield Batch(outputs)

    def _kind(self) -> str:
        raise NotImplementedError

    def _add(self, row: bytes, records: list[Any]) -> None:
        raise NotImplementedError

    def _take(self, row: bytes, key: Any, start: int) -> Any:
        raise NotImplementedError


class AggregateWindow(_Window):
    """Combines a value of every record; emits (key, window start, value)."""

    def __init__(self, span: WindowSpan, value_of: Callable[[Any], Any], combine: Combine) -> None:
        super().__init__(span)
        self._value_of = value_of
        self._combine = combine

    def _kind(self) -> str:
        return "window-aggregate"

    def _add(self, row: bytes, records: list[Any]) -> None:
        value = reduce(self._combine, map(self._value_of, records))
        before = self._rows.get(row)
        self._rows.put(row, value if before is None else self._combine(before, value))

    def _take(self, row: bytes, key: Any, start: int) -> Any:
        value = self._rows.get(row)
        self._rows.delete(row)
        return key, start, value


class RecordsWindow(_Window):
    """Keeps the records; emits what a function makes of (key, window start, records)."""

    def __init__(self, span: WindowSpan, function: Callable[[Any, int, list[Any]], Any]) -> None:
        super().__init__(span)
        self._function = function

    def _kind(self) -> str:
        return "window-records"

    def _add(self, row: bytes, records: list[Any]) -> None:
        # As in ListState: one row per window and flush, numbered by the flush.
        row += self._backend.seqno.to_bytes(_TIME_BYTES, "big")
        held = self._rows.changed(row)
        if held is None:
            self._rows.put(row, records)
            self._backend.grew(len(records) - 1)
        else:
            held.extend(records)
            self._backend.grew(len(records))

    def _take(self, row: bytes, key: Any, start: int) -> Any:
        records: list[Any] = []
        for part, held in list(self._rows.scan(row, prefix_end(row))):
            records += held
            self._rows.delete(part)
        with blame("window function"):
            return self._function(key, start, records)


def _encoded(start: int) -> bytes:
    return (start + _BIAS).to_bytes(_TIME_BYTES, "big")
