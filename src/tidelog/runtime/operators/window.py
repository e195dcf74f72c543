"""Event-time windows: tumbling and sliding, aggregated or with the records kept.

Sliding windows share slices, as in Flink's window functions: every start and every end of a window
begins one, so a window is whole slices, at most two for each of its slides. A tumbling window is
one slice.

Invariants: a record belongs to every window whose span [start, start + size) holds its time, and is
kept once, in its slice; a slice goes when the last window that has it fires. A key has a timer at
the end of the first unfired window of each of its slices, so its windows fire in the order of time,
each once, when the watermark passes its end. Records of which all windows fired are late: dropped,
or sent to a side output. A kept record is appended blindly: one small row, never a rewrite.

With an allowed lateness a slice stays for so long after the last window that has it has fired, by a
timer of its own; until then its windows that have fired do so again for a record that they get.
"""

from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Any, Final, cast

from tidelog.changelog.change import ROW_PREFIX_BYTES
from tidelog.runtime.channels.copies import copies_of
from tidelog.runtime.channels.messages import Batch, KeyedBatch
from tidelog.runtime.operators.answers import Combining
from tidelog.runtime.operators.operator import (
    TIMERS_PER_STEP,
    Operator,
    OperatorContext,
    event_times,
)
from tidelog.runtime.operators.outputs import Outputs
from tidelog.runtime.operators.overlaps import Combine, Slice, combined, together
from tidelog.runtime.operators.spans import ONCE, Firing, WindowSpan
from tidelog.runtime.operators.turn import PAUSE, REST
from tidelog.runtime.user_code import map_all
from tidelog.state.event_time import UNKNOWN
from tidelog.state.handles.keyed import append
from tidelog.state.handles.timers import KEY, TIME, Timers, decode_time, encode_time
from tidelog.state.key_groups import decode_key
from tidelog.state.objects.values import UntypedValues
from tidelog.state.registry import Definition

_START = slice(-8, None)
"""The encoded start in the row of a slice."""
_SLICED_KEY = slice(ROW_PREFIX_BYTES, -8)
"""The encoded key in the row of a slice."""
_FIRED: Final = "fired-windows"
"""The timers at the ends of windows that have fired and are still there."""


class _Window(Operator):
    """Assigns records to windows and fires them; subclasses hold the state."""

    kind: str
    """The kind of the state."""
    value_option: str
    """The option that declares the types of the stored values."""
    scanned: bool = True
    """What a window has is found by a scan."""
    elements: slice | None = None
    """What of a row's list the user has made; None: it is no list."""

    def __init__(self, span: WindowSpan, firing: Firing) -> None:
        self._span = span
        self._firing = firing
        self._next_end = UNKNOWN
        """Before this time no window ends."""
        self._fired_to = UNKNOWN
        """All windows that end up to here have fired."""

    @classmethod
    def state(cls, span: WindowSpan) -> Definition:
        # Stored rows know their slices' starts alone: another span would misread them.
        text = f"size {span.size_ms} ms, slide {span.slide_ms} ms"
        return Definition("windows", cls.kind, ("msgpack", text))

    def open(self, context: OperatorContext) -> None:
        self._backend = context.backend
        self._turn = context.turn
        self._timers = Timers(context.backend, "windows", listed=False)
        registry = context.backend.registry
        # Also where the lateness was taken away: windows that have fired are still stored.
        lasting = self._firing.lateness_ms or registry.stores(f"${_FIRED}-by-time")
        self._fired = Timers(context.backend, _FIRED, listed=False) if lasting else None
        self._values = UntypedValues(
            context.backend, self.state(self._span), self.value_option, elements=self.elements
        )
        self._rows, self._state = self._values.rows(scanned=self.scanned), self._values.prefix

    def process(self, batch: Batch) -> Iterable[Batch]:
        keyed = cast(KeyedBatch, batch)
        times, event_time = event_times(keyed), self._backend.event_time
        on_time, late = self._on_time(keyed, times, event_time, self._is_late, self._firing.late)
        if event_time.watermark > self._fired_to and self._is_early(on_time):
            changed: Iterable[Batch] = self._after_firing(on_time)
        else:
            changed = self._added(on_time)
        return changed if late is None else chain((late,), changed)

    def rows_read(self, batch: KeyedBatch) -> list[bytes]:
        state, slices = self._state, map(self._span.slice_of, event_times(batch))
        fields = zip(batch.groups, batch.keys, slices, strict=True)
        return [group + state + key + encode_time(start) for group, key, start in fields]

    def _added(self, batch: KeyedBatch) -> Iterable[Batch]:
        """Add records that are not late; what is emitted again for them."""
        if batch.records:
            self._add(batch)
        return () if self._firing.once else self._changed(batch)

    def _is_early(self, batch: KeyedBatch) -> bool:
        """Whether a record has a window that has ended, and may not have fired yet."""
        event_time, earliest = self._backend.event_time, min(batch.times or (), default=None)
        newest = max([event_time.watermark, *event_time.ahead.values()])
        return earliest is not None and self._span.first_end(earliest) <= newest

    def _after_firing(self, batch: KeyedBatch) -> Iterator[Batch]:
        """Add records when the windows that have ended have fired, all of them: they are few that
        come so late and are not late.
        """
        event_time = self._backend.event_time
        yield from self._fire(event_time.watermark, event_time.ahead)
        yield from self._added(batch)

    def _is_late(self, time: int, watermark: int) -> bool:
        """Whether all windows of a record with this time are over."""
        return self._span.last_end(time) + self._firing.lateness_ms <= watermark

    def _add(self, batch: KeyedBatch) -> None:
        """Add each record to its slice, and a timer at the end of the first window with a slice."""
        state, slices = self._state, map(self._span.slice_of, cast("list[int]", batch.times))
        fields = zip(batch.groups, batch.keys, slices, strict=True)
        rows = [group + state + key + encode_time(start) for group, key, start in fields]
        timers: list[tuple[int, bytes]] = []
        for row in self._add_rows(rows, batch.records):
            passed, start = self._backend.event_time.of(row[:2]), decode_time(row[_START])
            first, key = self._span.first_after(start, passed), row[:2] + row[_SLICED_KEY]
            if first <= start:
                timers.append((first + self._span.size_ms - 1, key))
            elif self._fired is not None:  # all its windows have fired
                self._fired.register_many([(self._span.last_end(start), key)])
        self._timers.register_many(timers)

    def _changed(self, batch: KeyedBatch) -> Iterator[Batch]:
        """Emit the windows that these records have changed: those that have fired, or all."""
        size, firing, event_time = self._span.size_ms, self._firing, self._backend.event_time
        newest = max([event_time.watermark, *event_time.ahead.values()])
        if not firing.updates and min(batch.times or (), default=newest + 1) > newest:
            return  # no window with these times has ended
        windows: defaultdict[tuple[bytes, bytes], list[int]] = defaultdict(list)
        for time, group, key in zip(batch.times or (), batch.groups, batch.keys, strict=True):
            passed = event_time.of(group)
            starts = self._span.starts(time, passed - firing.lateness_ms)
            if not firing.updates:
                starts = starts[: len(range(starts.start, passed - size + 2, starts.step))]
            windows[group, key] += starts
        outputs = Outputs(self._turn)
        for (group, key), changed in windows.items():
            self._backend.key, self._backend.key_prefix = key, group
            distinct = changed if len(changed) == 1 else sorted(set(changed))
            yield from self._emit_again(decode_key(key), distinct, outputs)
        yield from outputs.rest()

    def _emit_again(self, key: Any, starts: list[int], outputs: Outputs) -> Iterator[Batch]:
        """Emit windows of the current key, which all stay."""
        for start in starts:
            values, _ = yield from self._values_of_window(start, stays=True)
            yield from self._emit(key, start, values, outputs)
            if outputs.due:
                yield outputs.cut()

    def watermark(self, time: int) -> Iterable[Batch]:
        event_time = self._backend.event_time
        event_time.advance(time)
        ahead = event_time.ahead
        fired: Iterable[Batch] = ()
        if time < self._next_end:
            self._fired_to = time
        else:
            self._next_end = self._span.next_end(time)
            fired = self._fire(time, ahead)
        return fired if self._fired is None else chain(fired, self._drop(self._fired, time, ahead))

    def _fire(self, limit: int, ahead: Mapping[int, int]) -> Iterator[Batch]:
        yield from self._fire_windows(limit, ahead)
        self._fired_to = max(self._fired_to, limit)

    def _fire_windows(self, limit: int, ahead: Mapping[int, int]) -> Iterator[Batch]:
        outputs, firing = Outputs(self._turn), self._firing
        fired = 0
        for time, key in self._timers.expired_in_turn(limit, ahead):
            self._backend.use_encoded_key(key)
            start = time - self._span.size_ms + 1
            stays = firing.lateness_ms > 0
            values, last_slices = yield from self._values_of_window(start, stays=stays)
            if values and not firing.updates:
                yield from self._emit(decode_key(key), start, values, outputs)
            if last_slices < len(values):
                self._timers.register(time + self._span.slide_ms)
            if self._fired is not None and firing.lateness_ms and last_slices:
                self._fired.register(time)
            self._timers.delete(time)
            fired += 1
            if fired == TIMERS_PER_STEP or outputs.due:
                yield outputs.cut()
                yield PAUSE
                fired = 0
        yield from outputs.rest()

    def _drop(self, fired: Timers, limit: int, ahead: Mapping[int, int]) -> Iterator[Batch]:
        """Delete slices of which the allowed lateness of the last window is over."""
        lateness = self._firing.lateness_ms
        ahead = {group: watermark - lateness for group, watermark in ahead.items()}
        timers = chain.from_iterable(fired.expired_rows(limit - lateness, ahead))
        while chunk := list(islice(timers, TIMERS_PER_STEP)):
            for timer in chunk:
                start = decode_time(timer[TIME]) - self._span.size_ms + 1
                prefix = timer[:2] + self._state + timer[KEY]
                self._rows.delete_many(self._only_in(prefix, start))
            fired.delete_many(chunk)
            if len(chunk) == TIMERS_PER_STEP:
                yield REST  # what is deleted is memory, too, until it is flushed
                yield PAUSE

    def _values_of_window(
        self, start: int, *, stays: bool
    ) -> Generator[Batch, None, tuple[list[Any], int]]:
        """What the rows of a window of the current key have, by slice, and of how many slices it is
        the last window. The rows of those are deleted, unless all `stays`. Yields only `REST`.
        """
        prefix = self._backend.key_prefix + self._state + self._backend.key
        lower, upper = prefix + encode_time(start), prefix + encode_time(start + self._span.size_ms)
        next_window = prefix + encode_time(start + self._span.slide_ms)
        values: list[Any] = []
        last_rows: list[bytes] = []
        # What the user's functions get they may change, and later windows are to have it as it was.
        copied = stays or not self._span.tumbling
        for row, value in self._rows.scan(lower, upper, copied=copied):
            values.append(value)
            if row < next_window:
                last_rows.append(row)
            if self._turn.ended():
                yield REST
        if not stays:
            for row in last_rows:
                self._rows.delete(row)
        return values, len(last_rows)

    def _add_rows(self, rows: list[bytes], records: list[Any]) -> list[bytes]:
        """Add each record to the slice of its row; the rows that may have no timer yet."""
        raise NotImplementedError

    def _emit(self, key: Any, start: int, values: list[Any], outputs: Outputs) -> Iterator[Batch]:
        """Emit a window of the current key by what its rows have. Yields only `REST`."""
        raise NotImplementedError

    def _only_in(self, prefix: bytes, start: int) -> Iterable[bytes]:
        """The rows of the slices that no window after this one has."""
        raise NotImplementedError


class AggregateWindow(Combining, _Window):
    """Combines a value of every record; emits (key, window start, value)."""

    kind = "window-aggregate"
    value_option = "aggregate(..., value_type=...)"

    def __init__(
        self,
        span: WindowSpan,
        value_of: Callable[[Any], Any],
        combine: Combine,
        firing: Firing = ONCE,
    ) -> None:
        super().__init__(span, firing)
        self._value_of = value_of
        self._combine = combine

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._look(context.operator, self._values)

    def _add_rows(self, rows: list[bytes], records: list[Any]) -> list[bytes]:
        values = map_all(self._value_of, records)
        self._values.check_first(values)
        added = dict(zip(rows, values, strict=True))
        if len(added) < len(rows):
            added = self._reduced(rows, values)
        values_before = dict(zip(added, self._rows.get_many(list(added)), strict=True))
        new = [row for row, before in values_before.items() if before is None]
        if len(new) < len(values_before):
            for row, before in values_before.items():
                added[row] = self._combined(before, added[row])
        self._rows.put_many(added)
        return new

    def _values_of_window(
        self, start: int, *, stays: bool
    ) -> Generator[Batch, None, tuple[list[Any], int]]:
        if not self._span.tumbling:
            return (yield from super()._values_of_window(start, stays=stays))
        row = self._backend.key_prefix + self._state + self._backend.key + encode_time(start)
        value = self._rows.get(row)
        if not stays:
            self._rows.delete(row)
        return ([], 0) if value is None else (copies_of([value]), 1)

    def _emit_again(self, key: Any, starts: list[int], outputs: Outputs) -> Iterator[Batch]:
        if self._span.tumbling:
            return super()._emit_again(key, starts, outputs)
        return self._emit_overlapping(key, starts, outputs)

    def _emit_overlapping(self, key: Any, starts: list[int], outputs: Outputs) -> Iterator[Batch]:
        size = self._span.size_ms
        for group in together(starts, size):
            slices = yield from self._slices(group[0], group[-1] + size)
            for window in combined(slices, group, size, self._combined):
                if window is None:
                    if self._turn.ended():
                        yield REST
                    continue
                start, value = window
                if value is not None:
                    outputs.records.append((key, start, value))
                if outputs.due:
                    yield outputs.cut()

    def _slices(self, start: int, end: int) -> Generator[Batch, None, list[Slice]]:
        """The slices of the current key between two times. Yields only `REST`."""
        prefix = self._backend.key_prefix + self._state + self._backend.key
        slices: list[Slice] = []
        rows = self._rows.scan(prefix + encode_time(start), prefix + encode_time(end), copied=True)
        for row, value in rows:
            slices.append((decode_time(row[_START]), value))
            if self._turn.ended():
                yield REST
        return slices

    def _reduced(self, rows: list[bytes], values: list[Any]) -> dict[bytes, Any]:
        combine = self._combine
        reduced: dict[bytes, Any] = {}
        for row, value in zip(rows, values, strict=True):
            before = reduced.get(row)
            reduced[row] = value if before is None else combine(before, value)
        return reduced

    def _emit(self, key: Any, start: int, values: list[Any], outputs: Outputs) -> Iterator[Batch]:
        combined = None
        for value in values:
            combined = self._combined(combined, value)
            if self._turn.ended():
                yield REST
        if combined is not None:
            outputs.records.append((key, start, combined))

    def _only_in(self, prefix: bytes, start: int) -> Iterable[bytes]:
        # Not by a scan: the rows of tumbling windows are not scanned.
        return [prefix + encode_time(first) for first in self._span.slices_before_next(start)]


class RecordsWindow(_Window):
    """Keeps the records; emits what a function makes of (key, window start, records)."""

    kind = "window-records"
    elements = slice(None)
    value_option = "records(..., record_type=...)"

    def __init__(
        self,
        span: WindowSpan,
        function: Callable[[Any, int, list[Any]], Any],
        firing: Firing = ONCE,
    ) -> None:
        super().__init__(span, firing)
        self._function = function

    def _add_rows(self, rows: list[bytes], records: list[Any]) -> list[bytes]:
        self._values.check_first(records)
        records_of: dict[bytes, list[Any]] = defaultdict(list)
        for row, record in zip(rows, records, strict=True):
            records_of[row].append(record)
        return [
            row
            for row, added in records_of.items()
            if append(self._backend, self._rows, row, added)
        ]

    def _emit(self, key: Any, start: int, values: list[Any], outputs: Outputs) -> Iterator[Batch]:
        records = list(chain.from_iterable(values))
        outputs.records.append(self._function(key, start, records))
        return iter(())

    def _only_in(self, prefix: bytes, start: int) -> Iterable[bytes]:
        upper = prefix + encode_time(start + self._span.slide_ms)
        return [row for row, _ in self._rows.scan(prefix + encode_time(start), upper)]
