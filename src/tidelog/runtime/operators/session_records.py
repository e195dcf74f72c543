"""Session windows that keep their records.

Invariant: a record is appended blindly, to the slice of its time. Slices are as long as the gap, so
all records of one belong to one session, and sessions that become one rewrite none.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from tidelog.changelog.change import ROW_PREFIX_BYTES, prefix_end
from tidelog.runtime.channels.messages import Batch, KeyedBatch
from tidelog.runtime.operators.operator import OperatorContext
from tidelog.runtime.operators.outputs import Outputs
from tidelog.runtime.operators.session_window import SessionWindow
from tidelog.runtime.operators.spans import Firing
from tidelog.runtime.operators.turn import REST
from tidelog.state.handles.keyed import append
from tidelog.state.handles.timers import encode_time
from tidelog.state.key_groups import decode_key
from tidelog.state.objects.values import UntypedValues
from tidelog.state.registry import Definition
from tidelog.state.sessions import StoredSession


class RecordsSessions(SessionWindow):
    """Keeps the records; emits what a function makes of (key, start, end, records)."""

    value_name = "records"
    value_option = "records(..., record_type=...)"
    keys_at_once = 1

    def __init__(
        self, gap_ms: int, function: Callable[[Any, int, int, list[Any]], Any], firing: Firing
    ) -> None:
        super().__init__(gap_ms, firing)
        self._function = function

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        schema = ("msgpack", f"gap {self._gap_ms} ms")
        state = Definition("session-records", "window-records", schema)
        self._values = UntypedValues(
            context.backend, state, self.value_option, elements=slice(None)
        )
        self._rows = self._values.rows(scanned=True, cached=False)
        self._combined = lambda before, value: None  # the records are kept, and no value

    def _values_of(self, records: list[Any]) -> list[Any]:
        self._values.check_first(records)
        return [None] * len(records)

    def _keep(self, batch: KeyedBatch) -> None:
        gap, state = self._gap_ms, self._values.prefix
        records_by_row: dict[bytes, list[Any]] = defaultdict(list)
        fields = zip(batch.groups, batch.keys, batch.times or (), batch.records, strict=True)
        for group, key, time, record in fields:
            row = group + state + key + encode_time(time - time % gap)
            records_by_row[row].append(record)
        for row, records in records_by_row.items():
            append(self._backend, self._rows, row, records)

    def _emit(
        self, row: bytes, session: StoredSession, outputs: Outputs, *, stays: bool
    ) -> Iterator[Batch]:
        records: list[Any] = []
        for _, stored_records in self._rows.scan(*self._range(row, session), copied=stays):
            records += stored_records
            if self._turn.ended():
                yield REST
        key, end = decode_key(row[ROW_PREFIX_BYTES:]), session.last + self._gap_ms
        outputs.records.append(self._function(key, session.start, end, records))

    def _forget(self, row: bytes, session: StoredSession) -> Iterator[Batch]:
        for record_row, _ in self._rows.scan(*self._range(row, session)):
            self._rows.delete(record_row)
            if self._turn.ended():
                yield REST

    def _range(self, row: bytes, session: StoredSession) -> tuple[bytes, bytes]:
        """The first of the rows of a session's records, and the end of the last."""
        prefix, gap = row[:2] + self._values.prefix + row[ROW_PREFIX_BYTES:], self._gap_ms
        first, last = (prefix + encode_time(t - t % gap) for t in (session.start, session.last))
        return first, prefix_end(last)
