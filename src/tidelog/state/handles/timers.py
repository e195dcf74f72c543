"""Timers: (key, time) pairs that fire once; semantics of Spark's `transformWithState`.

Invariants:
- every timer is a row by time for firing and, where they are listed, one by key, written together;
- a timer fires when its time is at or below the limit; within a key group in time order;
- neither `_due` nor `_scans` exceeds the time of a key group's earliest timer, so a look at both
  can skip the group but never a timer.

While the timers of a limit fire, step by step, others may be registered, fired and deleted.
"""

from collections.abc import Iterable, Iterator, Mapping
from heapq import heappop, heappush
from itertools import chain, islice, takewhile
from types import MappingProxyType
from typing import Final

from tidelog.changelog.change import ROW_PREFIX_BYTES, prefix_end
from tidelog.changelog.row_memory import SAMPLE_EVERY, RowSize
from tidelog.changelog.state_rows import StateRows
from tidelog.state.backend import KeyedBackend
from tidelog.state.first_rows import FirstRows

_TIME_BYTES: Final = 8
TIME: Final = slice(ROW_PREFIX_BYTES, ROW_PREFIX_BYTES + _TIME_BYTES)
"""The encoded time in the row of a timer."""
KEY: Final = slice(TIME.stop, None)
"""The encoded key in the row of a timer."""
_BIAS: Final = 1 << 63
"""Added to a time before it is stored, so that byte order is numeric order also below zero."""
_EARLIEST: Final = -_BIAS
_LATEST: Final = _BIAS - 1
Rows = list[bytes]
NONE_AHEAD: Final[Mapping[int, int]] = MappingProxyType({})
_CHUNK: Final = 1024
"""Timers read ahead; bounds memory when all timers of a job fire at its end."""


class Timers:
    """The timers of one subtask."""

    def __init__(self, backend: KeyedBackend, name: str = "timers", *, listed: bool = True) -> None:
        self._backend = backend
        self._by_time, self._time_id = self._family(f"${name}-by-time")
        self._by_key: FirstRows | None = None
        if listed:
            rows, self._key_id = self._family(f"${name}-by-key")
            self._by_key = FirstRows(rows)
        self._due = dict.fromkeys(backend.owned, _EARLIEST)
        self._scans: dict[int, int] = {}
        """The earliest time of the running scan, of key groups of which timers are firing."""

    def _family(self, name: str) -> tuple[StateRows, bytes]:
        info = self._backend.registry.register(name, "timers", ("time bigint",))
        rows = self._backend.rows(lambda _: b"", lambda _: True, scanned=True, cached=False)
        return rows, info.id.to_bytes(2, "big")

    def register(self, time_ms: int) -> None:
        """Add a timer for the current key; adding it twice is adding it once."""
        time = encode_time(time_ms)
        backend = self._backend
        row = backend.key_prefix + self._time_id + time + backend.key
        if self._by_time.changed(row):
            return
        self._by_time.put(row, True)
        if self._by_key is not None:
            prefix = self._key_rows()
            self._by_key.put(prefix, prefix + time, True)
        group = int.from_bytes(backend.key_prefix, "big")
        self._due[group] = min(self._due[group], time_ms)

    def register_many(self, timers: Iterable[tuple[int, bytes]]) -> None:
        """Add a timer for each time and key, given after its key group; they are not listed."""
        state, due = self._time_id, self._due
        rows: dict[bytes, bool] = {}
        for time_ms, key in timers:
            rows[key[:2] + state + encode_time(time_ms) + key[2:]] = True
            group = int.from_bytes(key[:2], "big")
            due[group] = min(due[group], time_ms)
        self._by_time.put_many(rows)

    def delete_many(self, rows: Rows) -> None:
        """Remove timers that are not listed, by their rows."""
        self._by_time.delete_many(rows)

    def delete(self, time_ms: int) -> None:
        time = encode_time(time_ms)
        backend = self._backend
        self._by_time.delete(backend.key_prefix + self._time_id + time + backend.key)
        if self._by_key is not None:
            self._by_key.delete(self._key_rows() + time)

    def list(self) -> Iterator[int]:
        """Times of the current key's timers, ascending."""
        assert self._by_key is not None, "these timers are not listed"
        prefix = self._key_rows()
        for row, _ in self._by_key.scan(prefix):
            yield decode_time(row[len(prefix) :])

    def _key_rows(self) -> bytes:
        """The prefix of the current key's rows by key."""
        return self._backend.key_prefix + self._key_id + self._backend.key

    def due(self, limit_ms: int) -> Iterator[int]:
        """Times of the current key's timers up to a limit that exist now, ascending.

        The caller fires and deletes each, while the key stays the current one.
        """
        group, key = self._backend.key_prefix, self._backend.key
        if self._earliest(int.from_bytes(group, "big")) > limit_ms:
            return
        for time in [*takewhile(lambda time: time <= limit_ms, self.list())]:
            # A handler may have deleted this one.
            if self._by_time.get(group + self._time_id + encode_time(time) + key) is not None:
                yield time

    def expired(
        self, limit_ms: int, ahead: Mapping[int, int] = NONE_AHEAD
    ) -> Iterator[tuple[int, bytes]]:
        """(time, encoded key) of every timer with time <= `limit_ms` that exists now.

        `ahead` has later limits of some key groups. The caller makes the key current, fires, and
        deletes the timer.
        """
        for rows in self.expired_rows(limit_ms, ahead):
            yield from self._existing(rows)

    def expired_rows(self, limit_ms: int, ahead: Mapping[int, int] = NONE_AHEAD) -> Iterator[Rows]:
        """Like `expired`, the rows of many timers at once."""
        for group in self._due:
            limit = max(limit_ms, ahead.get(group, limit_ms))
            if self._earliest(group) <= limit:
                yield from self._expired_in(group, limit)

    def expired_in_turn(
        self, limit_ms: int, ahead: Mapping[int, int] = NONE_AHEAD
    ) -> Iterator[tuple[int, bytes]]:
        """Like `expired`, with those that are registered meanwhile, each in its place by time.

        A timer that fires may register later ones only, or this would never end.
        """
        for group in self._due:
            limit = max(limit_ms, ahead.get(group, limit_ms))
            again = self._earliest(group) <= limit
            while again:
                timers = map(self._existing, self._expired_in(group, limit))
                for time, key in chain.from_iterable(timers):
                    if self._due[group] < time:
                        break
                    yield time, key
                # Where it is the latest time there is, no timer is left.
                again = self._due[group] <= min(limit, _LATEST - 1)

    def next_times(self, time_ms: int) -> Iterator[int]:
        """The earliest time from `time_ms` on of each key group that has such a timer."""
        for group in self._due:
            prefix = group.to_bytes(2, "big") + self._time_id
            scan = self._by_time.scan(prefix + encode_time(time_ms), prefix_end(prefix))
            for row, _ in islice(scan, 1):
                yield decode_time(row[TIME])

    def _earliest(self, group: int) -> int:
        """No timer of a key group is earlier."""
        return min(self._due[group], self._scans.get(group, _LATEST))

    def _expired_in(self, group: int, limit_ms: int) -> Iterator[Rows]:
        earliest, outer = self._earliest(group), self._scans.get(group)
        # From here on registrations lower `_due` again; what exists is covered by the scan.
        self._due[group], self._scans[group] = _LATEST, earliest
        try:
            yield from self._scanned(group, earliest, limit_ms)
        finally:
            del self._scans[group]
            if outer is not None:
                self._scans[group] = outer

    def _scanned(self, group: int, earliest: int, limit_ms: int) -> Iterator[Rows]:
        prefix = group.to_bytes(2, "big") + self._time_id
        # Timers that fired have left tombstones in front; there is nothing before the bound.
        lower, end = prefix + encode_time(earliest), prefix_end(prefix)
        bound = prefix_end(prefix + encode_time(limit_ms))
        while True:
            chunk: Rows = []
            for row, _ in islice(self._by_time.scan(lower, end), _CHUNK):
                if row >= bound:
                    self._due[group] = min(self._due[group], decode_time(row[TIME]))
                    yield chunk
                    return
                chunk.append(row)
            yield chunk
            if len(chunk) < _CHUNK:
                return
            lower = chunk[-1] + b"\x00"

    def _existing(self, rows: Rows) -> Iterator[tuple[int, bytes]]:
        for row in rows:
            # A handler that ran since the rows were read may have deleted this one.
            if self._by_time.get(row) is not None:
                yield decode_time(row[TIME]), row[KEY]


class UnflushedTimers:
    """Timers in memory, which a flush makes rows: most of them fire between two flushes."""

    def __init__(self, backend: KeyedBackend, timers: Timers) -> None:
        self._timers = timers
        self._heap: list[tuple[int, bytes]] = []
        self._size = RowSize()
        self.updates = 0
        backend.buffer.add_unflushed(self)

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def memory_bytes(self) -> int:
        return int(len(self._heap) * self._size.bytes)

    def register(self, time_ms: int, key: bytes) -> None:
        """Add a timer for a key, given after its key group."""
        heappush(self._heap, (time_ms, key))
        if self.updates % SAMPLE_EVERY == 0:
            self._size.sample(key, None)
        self.updates += 1

    def take_expired(self, limit_ms: int, count: int) -> list[tuple[int, bytes]]:
        """Remove at most so many timers up to `limit_ms`, to be fired before a barrier passes."""
        heap, expired, end = self._heap, list[tuple[int, bytes]](), (limit_ms + 1,)
        while heap and heap[0] < end and len(expired) < count:
            expired.append(heappop(heap))
        return expired

    def spill(self, limit: int) -> None:
        first = max(0, len(self._heap) - limit)
        self._timers.register_many(self._heap[first:])
        del self._heap[first:]  # the last elements of a heap may go


def encode_time(time_ms: int) -> bytes:
    """The time as a timer's row has it."""
    return (time_ms + _BIAS).to_bytes(_TIME_BYTES, "big")


def decode_time(data: bytes) -> int:
    """The time in a timer's row."""
    return int.from_bytes(data, "big") - _BIAS
