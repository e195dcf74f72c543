"""Event-time windows: tumbling and sliding, aggregated or with the records kept.

Sliding windows share slices, as in Flink's window functions: every start and every end of a window
begins one, so a window is whole slices, at most two for each of its slides. A tumbling window is
one slice.

Invariants: a record belongs to every window whose span [start, start + size) holds its time, and
is kept once, in its slice; a slice goes when the last window that has it fires. A key has a timer
at the end of the first unfired window of each of its slices, so its windows fire in the order of
time, each once, when the watermark passes its end. Records of which all windows fired are late:
dropped, or sent to a side output. A kept record is appended blindly: one small row, never a
rewrite.
"""

from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, cast

from tidelog.changelog.change import ROW_PREFIX_BYTES
from tidelog.errors import ConfigError
from tidelog.runtime.channels.messages import Batch, KeyedBatch, SideBatch
from tidelog.runtime.operators.operator import TIMERS_PER_STEP, Operator, OperatorContext
from tidelog.runtime.operators.outputs import Outputs
from tidelog.runtime.operators.turn import PAUSE, REST
from tidelog.runtime.user_code import map_all, user_code
from tidelog.state.event_time import UNKNOWN, EventTime
from tidelog.state.handles.list import append
from tidelog.state.handles.timers import Timers, decode_time, encode_time
from tidelog.state.key_groups import decode_key
from tidelog.state.objects.values import UntypedValues
from tidelog.state.registry import Definition
from tidelog.state.schema.evolution import IN_SLICES

_START = slice(-8, None)
"""Where the row of a slice has its start, encoded."""
_SLICED_KEY = slice(ROW_PREFIX_BYTES, -8)
"""Where it has the encoded key."""

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

    @property
    def tumbling(self) -> bool:
        """Whether each window is one slice, which no other window has."""
        return self.slide_ms == self.size_ms

    def slice_of(self, time_ms: int) -> int:
        """Start of the slice that holds a time: no window starts or ends between the two."""
        into_slide, last_end = time_ms % self.slide_ms, self.size_ms % self.slide_ms
        return time_ms - into_slide + (last_end if into_slide >= last_end else 0)

    def last_end(self, time_ms: int) -> int:
        """The last time of the last window that has this time."""
        return time_ms - time_ms % self.slide_ms + self.size_ms - 1

    def next_end(self, passed_ms: int) -> int:
        """The last time of the first window that ends after `passed_ms`."""
        return self.first_after(passed_ms, passed_ms) + self.size_ms - 1

    def first_after(self, slice_ms: int, passed_ms: int) -> int:
        """Start of the first window with this slice that ends after `passed_ms`."""
        too_early = max(slice_ms, passed_ms + 1) - self.size_ms
        return too_early - too_early % self.slide_ms + self.slide_ms


class _Window(Operator):
    """Assigns records to windows and fires them; subclasses hold the state."""

    kind: str
    """The kind of the state."""
    value_option: str
    """The option that declares the types of the stored values."""
    scanned: bool = True
    """What a window has is found by a scan."""
    keeps_records: bool = False
    """A row is a list of records."""

    def __init__(self, span: WindowSpan, late: str | None) -> None:
        self._span = span
        self._late = late
        self._next_end = UNKNOWN
        """Before this time no window ends."""
        self.late_records = 0

    @classmethod
    def state(cls, span: WindowSpan) -> Definition:
        """The state of windows of this span."""
        # Stored rows know their slices' starts alone: another span would misread them.
        text = f"size {span.size_ms} ms, slide {span.slide_ms} ms"
        return "windows", cls.kind, ("msgpack", text, *(() if span.tumbling else (IN_SLICES,)))

    def open(self, context: OperatorContext) -> None:
        self._backend = context.backend
        self._turn = context.turn
        self._timers = Timers(context.backend, "windows", listed=False)
        registry = context.backend.registry
        info = registry.register(*self.state(self._span))
        self._state = info.id.to_bytes(2, "big")
        known = registry.value_types(info, self.value_option)
        self._values = UntypedValues(known, lists=self.keeps_records)
        self._rows = context.backend.rows(
            info,
            self._values.encode,
            self._values.decode,
            scanned=self.scanned,
            encode_many=self._values.encode_many,
        )

    def process(self, batch: Batch) -> Iterable[Batch]:
        keyed = cast(KeyedBatch, batch)
        if keyed.times is None:
            raise ConfigError(
                "window on a stream without event time",
                action="call .event_time(...) before .key_by(...)",
            )
        kept, late = self._divided(keyed)
        if kept.records:
            self._add(kept)
        if late is None:
            return ()
        self.late_records += len(late.records)
        return () if self._late is None else (late,)

    def _divided(self, batch: KeyedBatch) -> tuple[KeyedBatch, SideBatch | None]:
        """(records with a window that has not fired; late ones)."""
        times, event_time = cast("list[int]", batch.times), self._backend.event_time
        last_end, passed = self._span.last_end, event_time.watermark
        if not event_time.ahead and last_end(min(times)) > passed:
            return batch, None
        fields = zip(times, batch.groups, strict=True)
        on_time = [last_end(time) > event_time.of(group) for time, group in fields]
        return batch.divided(on_time, self._late)

    def _add(self, batch: KeyedBatch) -> None:
        """Add each record to its slice, and the slice a timer at the end of its first window."""
        state, slices = self._state, map(self._span.slice_of, cast("list[int]", batch.times))
        fields = zip(batch.groups, batch.keys, slices, strict=True)
        rows = [group + state + key + encode_time(start) for group, key, start in fields]
        timers: dict[int, list[bytes]] = defaultdict(list)
        for row in self._add_rows(rows, batch.records):
            passed = self._backend.event_time.of(row[:2])
            first = self._span.first_after(decode_time(row[_START]), passed)
            timers[first + self._span.size_ms - 1].append(row[:2] + row[_SLICED_KEY])
        for time, keys in timers.items():
            self._timers.register_many(time, keys)

    def watermark(self, time: int) -> Iterable[Batch]:
        event_time = self._backend.event_time
        event_time.advance(time)
        if event_time.watermark < self._next_end:
            return ()
        self._next_end = self._span.next_end(event_time.watermark)
        return self._fire(event_time)

    def _fire(self, event_time: EventTime) -> Iterator[Batch]:
        outputs = Outputs(self._turn)
        fired = 0
        for time, key in self._timers.expired_in_turn(event_time.watermark, event_time.ahead):
            self._backend.use_encoded_key(key)
            start = time - self._span.size_ms + 1
            stays = yield from self._take(decode_key(key), start, outputs)
            if stays:
                self._timers.register(time + self._span.slide_ms)
            self._timers.delete(time)
            fired += 1
            if fired == TIMERS_PER_STEP or outputs.due:
                yield outputs.cut()
                yield PAUSE
                fired = 0
        if outputs.records:
            yield outputs.cut()

    def _held(self, start: int) -> Generator[Batch, None, tuple[list[Any], bool]]:
        """What the rows of a window of the current key have, by slice, and whether some stay.

        Those that no later window has are deleted. Yields only `REST`.
        """
        prefix = self._backend.key_prefix + self._state + self._backend.key
        lower, upper = prefix + encode_time(start), prefix + encode_time(start + self._span.size_ms)
        kept = prefix + encode_time(start + self._span.slide_ms)
        held: list[Any] = []
        gone: list[bytes] = []
        # What the user's functions get they may change, and later windows are to have it as it was.
        for row, value in self._rows.scan(lower, upper, copied=not self._span.tumbling):
            held.append(value)
            if row < kept:
                gone.append(row)
            if self._turn.ended():
                yield REST
        for row in gone:
            self._rows.delete(row)
        return held, len(gone) < len(held)

    def _add_rows(self, rows: list[bytes], records: list[Any]) -> list[bytes]:
        """Add each record to the slice of its row; the rows that may have no timer yet."""
        raise NotImplementedError

    def _take(self, key: Any, start: int, outputs: Outputs) -> Generator[Batch, None, bool]:
        """Emit a window of the current key; whether slices of it stay. Yields only `REST`."""
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

    def _add_rows(self, rows: list[bytes], records: list[Any]) -> list[bytes]:
        values = map_all(self._value_of, records)
        self._values.check_first(values)
        added = dict(zip(rows, values, strict=True))
        if len(added) < len(rows):
            added = self._reduced(rows, values)
        held = dict(zip(added, self._rows.get_many(list(added)), strict=True))
        new = [row for row, before in held.items() if before is None]
        if len(new) < len(held):
            for row, before in held.items():
                added[row] = self._combined(before, added[row])
        self._rows.put_many(added)
        return new

    def _reduced(self, rows: list[bytes], values: list[Any]) -> dict[bytes, Any]:
        combine = self._combine
        reduced: dict[bytes, Any] = {}
        for row, value in zip(rows, values, strict=True):
            reduced[row] = combine(reduced[row], value) if row in reduced else value
        return reduced

    def _take(self, key: Any, start: int, outputs: Outputs) -> Generator[Batch, None, bool]:
        values, stays = yield from self._held(start)
        combined = None
        for value in values:
            combined = self._combined(combined, value)
            if self._turn.ended():
                yield REST
        if values:
            outputs.records.append((key, start, combined))
        return stays

    def _combined(self, before: Any, value: Any) -> Any:
        try:
            return value if before is None else self._combine(before, value)
        except Exception:
            # A value of a changed type often cannot be combined with one that is stored.
            self._values.check_combined([value])
            raise


class RecordsWindow(_Window):
    """Keeps the records; emits what a function makes of (key, window start, records)."""

    kind = "window-records"
    keeps_records = True
    value_option = "window_records(..., record_type=...)"

    def __init__(
        self,
        span: WindowSpan,
        function: Callable[[Any, int, list[Any]], Any],
        late: str | None = None,
    ) -> None:
        super().__init__(span, late)
        self._function = function

    def _add_rows(self, rows: list[bytes], records: list[Any]) -> list[bytes]:
        self._values.check_first(records)
        held: dict[bytes, list[Any]] = defaultdict(list)
        for row, record in zip(rows, records, strict=True):
            held[row].append(record)
        fields = held.items()
        return [row for row, some in fields if append(self._backend, self._rows, row, some)]

    def _take(self, key: Any, start: int, outputs: Outputs) -> Generator[Batch, None, bool]:
        parts, stays = yield from self._held(start)
        records = [record for part in parts for record in part]
        with user_code("window function"):
            outputs.records.append(self._function(key, start, records))
        return stays
