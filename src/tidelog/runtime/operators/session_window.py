"""Session windows: the records of a key without a pause longer than the gap.

A session ends a gap after its last record; one that is exactly then belongs to it still. A record
that comes between two sessions makes them one.

Invariants: a session fires when the watermark is at its end, so that only a record below the
watermark could have joined it; those of a key fire in the order of time; a key has a timer at or
before the first time at which one of its sessions is to fire or to go, and none is moved when a
session grows; sessions of a key that have ended fire before its next records are looked at. A
record is late where it joins no session, and a session of its own would be over.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from itertools import chain, compress, islice
from typing import Any, cast

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
from tidelog.runtime.operators.overlaps import Combine
from tidelog.runtime.operators.spans import Firing
from tidelog.runtime.operators.turn import PAUSE, REST
from tidelog.runtime.user_code import map_all
from tidelog.state.event_time import UNKNOWN
from tidelog.state.handles.timers import KEY, Timers, UnflushedTimers
from tidelog.state.key_groups import decode_key
from tidelog.state.sessions import (
    BOUND,
    EARLIEST_LAST,
    FIRED,
    NEWEST_LAST,
    NEWEST_START,
    NEWEST_VALUE,
    NO_SESSIONS,
    KeyCells,
    SessionRows,
    StoredSession,
    sessions_in,
)

_CellsByRow = dict[bytes, KeyCells | None]
"""The rows of keys by their row keys."""


class SessionWindow(Operator):
    """Puts records into sessions and fires them; subclasses have what sessions are made of."""

    value_name: str
    """What is kept of the records."""
    value_option: str
    """The option that declares the types of what is kept."""
    _combined: Combine
    """Combines what a session has, or None, with another value."""
    keys_at_once: int
    """Keys of which sessions fire before the size of the output is looked at."""

    def __init__(self, gap_ms: int, firing: Firing) -> None:
        self._gap_ms = gap_ms
        self._firing = firing
        self._fired_to = UNKNOWN
        """All sessions that end up to here have fired."""

    def open(self, context: OperatorContext) -> None:
        self._backend = context.backend
        self._turn = context.turn
        self._timers = Timers(context.backend, "sessions", listed=False)
        self._unflushed = UnflushedTimers(context.backend, self._timers)
        self._sessions = SessionRows(
            context.backend, self._gap_ms, self.value_name, self.value_option
        )

    def process(self, batch: Batch) -> Iterable[Batch]:
        keyed = cast(KeyedBatch, batch)
        times = event_times(keyed)
        rows = keyed.row_keys(self._sessions.prefix)
        cells_of = dict(zip(rows, self._sessions.by_key.get_many(rows), strict=True))
        fired = self._fire_first(cells_of)
        # A session with a record that is later has not fired, whichever its key group.
        event_time = self._backend.event_time
        fired_to = max([event_time.watermark, *event_time.ahead.values()]) - self._gap_ms
        on_time = self._add(rows, times, keyed.records, cells_of, fired_to)
        self._sessions.by_key.put_many({row: cells for row, cells in cells_of.items() if cells})
        accepted, late = keyed.divided(on_time, self._firing.late)
        self.late_records += len(times) - len(accepted.records)
        self._keep(accepted)
        changed: Iterable[Batch] = fired
        if not self._firing.once:
            emitted_again = [
                (row, time)
                for row, time in compress(zip(rows, times, strict=True), on_time)
                if self._firing.updates or time <= fired_to
            ]
            changed = chain(fired, self._emit_changed(cells_of, emitted_again))
        return changed if late is None else chain((late,), changed)

    def _fire_first(self, cells_of: _CellsByRow) -> list[Batch]:
        """Fire what is due of these keys, while the sessions of others fire; their output."""
        event_time = self._backend.event_time
        if event_time.watermark <= self._fired_to:
            return []
        due: list[bytes] = []
        for row, cells in cells_of.items():
            if not cells:
                continue
            watermark = event_time.of(row[:2])
            if cells[BOUND] is not None or self._end(cells[EARLIEST_LAST]) <= watermark:
                due.append(row)
        outputs = Outputs(self._turn)
        fired = [*self._fire_keys(due, outputs), *outputs.rest()]
        cells_of.update(zip(due, self._sessions.by_key.get_many(due), strict=True))
        return fired

    def _add(
        self,
        rows: list[bytes],
        times: list[int],
        records: list[Any],
        cells_of: _CellsByRow,
        fired_to: int,
    ) -> list[bool]:
        """Add records to the sessions of their rows; for each whether it was on time."""
        gap, combine = self._gap_ms, self._combined
        values = self._values_of(records)
        on_time = [True] * len(rows)
        fields = enumerate(zip(rows, times, values, strict=True))
        for index, (row, time, value) in fields:
            cells = cells_of[row]
            if (
                cells
                and cells[NEWEST_START] <= time <= cells[NEWEST_LAST] + gap
                and cells[NEWEST_LAST] > fired_to
            ):
                cells[NEWEST_VALUE] = combine(cells[NEWEST_VALUE], value)
                cells[NEWEST_LAST] = max(cells[NEWEST_LAST], time)
            else:
                on_time[index] = self._begin_or_join(cells_of, row, time, value)
        return on_time

    def _begin_or_join(self, cells_of: _CellsByRow, row: bytes, time: int, value: Any) -> bool:
        """Add a record that may begin, join or revive a session; whether it was on time."""
        sessions, gap, lateness = self._sessions, self._gap_ms, self._firing.lateness_ms
        watermark = self._backend.event_time.of(row[:2])
        cells = cells_of[row]
        joined: list[StoredSession] = []
        if cells and time <= cells[NEWEST_LAST] + gap:
            joined = sessions.take(row, cells, time)
        start = last = time
        if joined:
            start, last = min(time, joined[0].start), max(time, joined[-1].last)
        end = self._end(last)
        if end + lateness <= watermark:
            for session in joined:  # stored for a lateness that was longer then
                sessions.insert(row, cast(KeyCells, cells), session)
            return False
        if not cells:
            cells = cells_of[row] = [watermark, None]
        combined = value
        if joined:
            combined = None
            for part in (*[session.value for session in joined], value):
                combined = self._combined(combined, part)
        last_times = sessions.insert(row, cells, StoredSession(combined, start, last))
        last_times += [session.last for session in joined]
        if end <= watermark:
            cells[FIRED] = watermark
            self._register(row, end + lateness)
        elif all(self._end(last_time) <= watermark for last_time in last_times):
            # Else the session before it, or one that it joined, has a timer that is early enough.
            self._register(row, end)
        return True

    def _end(self, last_ms: int) -> int:
        """The last time of a record that joins a session whose last record has this time."""
        return last_ms + self._gap_ms

    def _register(self, row: bytes, time_ms: int) -> None:
        self._unflushed.register(time_ms, row[:2] + row[ROW_PREFIX_BYTES:])

    def _emit_changed(
        self, cells_of: _CellsByRow, records: list[tuple[bytes, int]]
    ) -> Iterator[Batch]:
        """Emit the sessions of these records that are to be emitted again, each once."""
        changed: dict[tuple[bytes, int], StoredSession] = {}
        for row, time in records:
            session = self._sessions.find(row, cast(KeyCells, cells_of[row]), time)
            has_ended = self._end(session.last) <= self._backend.event_time.of(row[:2])
            if has_ended or self._firing.updates:
                changed[row, session.start] = session
        outputs = Outputs(self._turn)
        for (row, _), session in changed.items():
            yield from self._emit(row, session, outputs, stays=True)
            if outputs.due:
                yield outputs.cut()
        yield from outputs.rest()

    def watermark(self, time: int) -> Iterable[Batch]:
        event_time = self._backend.event_time
        event_time.advance(time)
        return self._fire(time, event_time.ahead)

    def _fire(self, limit: int, ahead: Mapping[int, int]) -> Iterator[Batch]:
        outputs, state = Outputs(self._turn), self._sessions.prefix
        while timers := self._unflushed.take_expired(limit, self.keys_at_once):
            times = {key[:2] + state + key[2:]: time for time, key in timers}
            for row in (yield from self._fire_rows([*times], outputs)):
                # A barrier may pass while it fires, and has to find a timer.
                self._timers.register_many([(times[row], row[:2] + row[ROW_PREFIX_BYTES:])])
            yield from outputs.step(TIMERS_PER_STEP)
        expired = chain.from_iterable(self._timers.expired_rows(limit, ahead))
        while timers_at_once := list(islice(expired, self.keys_at_once)):
            keys = dict.fromkeys(timer[:2] + state + timer[KEY] for timer in timers_at_once)
            yield from self._fire_keys([*keys], outputs)
            self._timers.delete_many(timers_at_once)
            yield from outputs.step(TIMERS_PER_STEP)
        self._fired_to = limit
        yield from outputs.rest()

    def _fire_keys(self, rows: list[bytes], outputs: Outputs) -> Iterator[Batch]:
        by_key = self._sessions.by_key
        for row in (yield from self._fire_rows(rows, outputs)):
            # In a pause records may come, and all that is due of the key fires before them.
            while cells := by_key.get(row):
                due = yield from self._fire_earlier(row, cells, outputs)
                if due is None:
                    by_key.put(row, cells)
                    # Either lets the state be flushed: what is deleted is memory, too.
                    yield outputs.cut() if outputs.records else REST
                    yield PAUSE
                    continue
                yield from self._fire_newest(row, cells, due, outputs)
                by_key.put(row, cells if len(cells) > NO_SESSIONS else None)
                break

    def _fire_rows(
        self, rows: list[bytes], outputs: Outputs
    ) -> Generator[Batch, None, list[bytes]]:
        """Fire sessions of the rows of keys; those of which earlier sessions have their own rows.

        Yields only `REST`.
        """
        event_time, fired = self._backend.event_time, dict[bytes, Any]()
        with_earlier: list[bytes] = []
        for row, cells in zip(rows, self._sessions.by_key.get_many(rows), strict=True):
            if not cells:
                continue
            if cells[BOUND] is not None:
                with_earlier.append(row)
            elif (end := self._end(cells[EARLIEST_LAST])) > event_time.of(row[:2]):
                self._register(row, end)  # it has grown since
            else:
                yield from self._fire_newest(row, cells, [], outputs)
                fired[row] = cells if len(cells) > NO_SESSIONS else None
        self._sessions.by_key.put_many(fired)
        return with_earlier

    def _fire_earlier(
        self, row: bytes, cells: KeyCells, outputs: Outputs
    ) -> Generator[Batch, None, list[int] | None]:
        """Fire and remove sessions with rows of their own; returns when others of them are due.

        None: there are more, which are to be fired after a pause. Yields only `REST`.
        """
        sessions, watermark = self._sessions, self._backend.event_time.of(row[:2])
        ended_to, lateness = watermark - self._gap_ms, self._firing.lateness_ms
        if not self._firing.updates:
            first = cells[FIRED] - self._gap_ms + 1
            for count, session in enumerate(sessions.earlier(row, first, ended_to), 1):
                yield from self._emit(row, session, outputs, stays=lateness > 0)
                cells[FIRED] = self._end(session.last)
                if count == TIMERS_PER_STEP or outputs.due:
                    return None
        for count, session in enumerate(sessions.earlier(row, UNKNOWN, ended_to - lateness), 1):
            yield from self._forget(row, session)
            sessions.delete_earlier(row, session.last)
            if count == TIMERS_PER_STEP:
                return None
        next_sessions = [*islice(sessions.earlier(row, UNKNOWN), 1)]
        if not next_sessions:
            cells[BOUND] = None
        next_sessions += islice(sessions.earlier(row, ended_to + 1), 1)
        return [self._due(session, watermark) for session in next_sessions]

    def _fire_newest(
        self, row: bytes, cells: KeyCells, due: list[int], outputs: Outputs
    ) -> Iterator[Batch]:
        """Fire and remove sessions of the row of a key, and register when the next ones are due:
        these, or earlier ones at the times `due`.

        Yields only `REST`.
        """
        watermark, lateness = self._backend.event_time.of(row[:2]), self._firing.lateness_ms
        remaining: list[Any] = []
        for session in sessions_in(cells):
            end = self._end(session.last)
            stays = end + lateness > watermark
            if cells[FIRED] < end <= watermark and not self._firing.updates:
                yield from self._emit(row, session, outputs, stays=stays)
            if stays:
                remaining += session
                due.append(self._due(session, watermark))
            else:
                yield from self._forget(row, session)
        cells[:] = [*remaining, max(cells[FIRED], watermark), cells[BOUND]]
        if due:
            self._register(row, min(due))

    def _due(self, session: StoredSession, watermark: int) -> int:
        """When a session fires, or goes if it has fired."""
        end = self._end(session.last)
        return end if end > watermark else end + self._firing.lateness_ms

    def _values_of(self, records: list[Any]) -> list[Any]:
        """What each record adds to its session."""
        raise NotImplementedError

    def _keep(self, batch: KeyedBatch) -> None:
        """Keep records, whose sessions are known already."""

    def _emit(
        self, row: bytes, session: StoredSession, outputs: Outputs, *, stays: bool
    ) -> Iterator[Batch]:
        """Emit a session, which `stays` in the state or does not. Yields only `REST`."""
        raise NotImplementedError

    def _forget(self, row: bytes, session: StoredSession) -> Iterator[Batch]:
        """Remove what was kept of a session. Yields only `REST`."""
        return iter(())


class AggregateSessions(Combining, SessionWindow):
    """Combines a value of every record; emits (key, start, end, value)."""

    value_name = "values"
    value_option = "aggregate(..., value_type=...)"
    keys_at_once = 256

    def __init__(
        self, gap_ms: int, value_of: Callable[[Any], Any], combine: Combine, firing: Firing
    ) -> None:
        super().__init__(gap_ms, firing)
        self._value_of = value_of
        self._combine = combine

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._look(context.operator, self._sessions.values)

    def _values_of(self, records: list[Any]) -> list[Any]:
        values = map_all(self._value_of, records)
        self._sessions.values.check_first(values)
        return values

    def _emit(
        self, row: bytes, session: StoredSession, outputs: Outputs, *, stays: bool
    ) -> Iterator[Batch]:
        if session.value is None:
            return iter(())
        values = [session.value]
        # What follows may change a value, and state stays as it is; one that goes may never have
        # been written.
        if stays:
            values = copies_of(values)
        else:
            self._sessions.values.check_new(values)
        key, end = decode_key(row[ROW_PREFIX_BYTES:]), session.last + self._gap_ms
        outputs.records.append((key, session.start, end, *values))
        return iter(())
