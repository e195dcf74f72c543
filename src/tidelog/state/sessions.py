"""The sessions of keys as rows.

The newest sessions of a key are in one row, `[value, start, last, ..., fired, bound]`, the earliest
first; earlier ones have a row each, ordered by the last time of the session. So a record of the
newest session needs one look-up, one of an earlier session a scan of two rows, and nothing ever
reads all sessions of a key.

Invariants:
- more than the gap lies between two sessions of a key, so a record joins two of them at most;
- a session with a row of its own ends at `bound` or before, one of the row by key after it; None:
  no session has a row of its own;
- the row by key has the newest session, and goes with it;
- sessions of which the end is at `fired` or before have been emitted.
"""

from collections.abc import Iterator
from itertools import chain
from operator import attrgetter
from typing import Any, Final, NamedTuple

from tidelog.changelog.change import ROW_PREFIX_BYTES, prefix_end
from tidelog.state.backend import KeyedBackend
from tidelog.state.event_time import MAX_WATERMARK, UNKNOWN
from tidelog.state.handles.timers import decode_time, encode_time
from tidelog.state.objects.values import UntypedValues
from tidelog.state.registry import Definition

MAX_SESSIONS: Final = 8
"""Sessions in the row of a key: all of them are written when one has changed."""
NEWEST_VALUE, NEWEST_START, NEWEST_LAST = -5, -4, -3
"""Indexes of the newest session in a row by key."""
FIRED, BOUND = -2, -1
"""Indexes of `fired` and `bound` in a row by key."""
EARLIEST_LAST: Final = 2
"""Index of the last time of the earliest session in a row by key."""
NO_SESSIONS: Final = 2
"""The length of a row without sessions."""
_PARTS: Final = 3
"""Elements of a row by key for each session."""
_TIME_BYTES: Final = 8
_GROUP_BYTES: Final = 2
_last_time: Final = attrgetter("last")
SESSION_VALUES: Final = slice(0, FIRED, _PARTS)
"""The values of the sessions in a row by key."""

KeyCells = list[Any]
"""A row by key."""


class StoredSession(NamedTuple):
    """The records of a key without a longer pause than the gap between two of them."""

    value: Any
    start: int
    last: int
    """The time of the last record."""


def sessions_in(cells: KeyCells) -> list[StoredSession]:
    """The sessions of a row by key, the earliest first."""
    return [
        StoredSession(*cells[index : index + _PARTS])
        for index in range(0, len(cells) + FIRED, _PARTS)
    ]


class SessionRows:
    """The sessions of one operator and subtask."""

    def __init__(self, backend: KeyedBackend, gap_ms: int, value_name: str, option: str) -> None:
        """`value_name` is what sessions have as their value, `option` what declares its type."""
        self._gap_ms = gap_ms
        schema = ("msgpack", f"gap {gap_ms} ms", value_name)
        sessions = Definition("sessions", "sessions", schema)
        self.values = UntypedValues(backend, sessions, option, elements=SESSION_VALUES)
        self.by_key, self.prefix = self.values.rows(), self.values.prefix
        earlier = Definition("earlier-sessions", "earlier-sessions", schema)
        values = UntypedValues(backend, earlier, option, elements=slice(0, 1))
        self._earlier, self._earlier_prefix = values.rows(scanned=True, cached=False), values.prefix

    def find(self, row: bytes, cells: KeyCells, time_ms: int) -> StoredSession:
        """The session that has a record of this time."""
        sessions = chain(reversed(sessions_in(cells)), self.earlier(row, time_ms))
        session: StoredSession = next(s for s in sessions if s.start <= time_ms <= s.last)
        return session

    def take(self, row: bytes, cells: KeyCells, time_ms: int) -> list[StoredSession]:
        """Remove the sessions that a record of this time joins, the earliest first."""
        gap, joined = self._gap_ms, list[StoredSession]()
        if cells[BOUND] is not None and time_ms - gap <= cells[BOUND]:
            for session in self.earlier(row, time_ms - gap):
                if session.start - gap > time_ms:
                    break
                joined.append(session)
            for session in joined:
                self.delete_earlier(row, session.last)
        for index in reversed(range(0, len(cells) + FIRED, _PARTS)):
            session = StoredSession(*cells[index : index + _PARTS])
            if session.start - gap <= time_ms <= session.last + gap:
                joined.append(session)
                del cells[index : index + _PARTS]
        return sorted(joined, key=_last_time)

    def insert(self, row: bytes, cells: KeyCells, session: StoredSession) -> list[int]:
        """Add a session, which joins none; returns the last time of the one before it in the row.

        The list is empty where there is none.
        """
        bound = cells[BOUND]
        if bound is not None and session.last <= bound:
            self._put_earlier(row, session)
            return []
        index = len(cells) + FIRED
        while index > 0 and cells[index - 1] > session.last:
            index -= _PARTS
        before = cells[max(0, index - 1) : index]
        cells[index:index] = session
        while len(cells) + FIRED > MAX_SESSIONS * _PARTS:
            earliest = StoredSession(*cells[:_PARTS])
            del cells[:_PARTS]
            self._put_earlier(row, earliest)
            cells[BOUND] = earliest.last
        return before

    def earlier(
        self, row: bytes, first_ms: int, last_ms: int | None = None
    ) -> Iterator[StoredSession]:
        """Sessions with rows of their own whose last time is in a range, in its order."""
        prefix = self._earlier_row(row)
        last = prefix if last_ms is None else prefix + encode_time(last_ms)
        first = prefix + encode_time(min(max(first_ms, UNKNOWN), MAX_WATERMARK))
        for key, (value, start) in self._earlier.scan(first, prefix_end(last)):
            yield StoredSession(value, start, decode_time(key[-_TIME_BYTES:]))

    def delete_earlier(self, row: bytes, last_ms: int) -> None:
        """Remove a session with a row of its own."""
        self._earlier.delete(self._earlier_row(row) + encode_time(last_ms))

    def _put_earlier(self, row: bytes, session: StoredSession) -> None:
        key = self._earlier_row(row) + encode_time(session.last)
        self._earlier.put(key, [session.value, session.start])

    def _earlier_row(self, row: bytes) -> bytes:
        return row[:_GROUP_BYTES] + self._earlier_prefix + row[ROW_PREFIX_BYTES:]
