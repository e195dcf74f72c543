"""Rows with a bucket of time, a key, a time and a number: of records, and of marks of records.

Invariant: behind the state's id a row's key is `bucket | key | time | number`, so the rows of a key
in a bucket are one range in the order of time, and so are those of several buckets.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, TypeVar

from tidelog.changelog.change import ROW_PREFIX_BYTES, prefix_end
from tidelog.changelog.row_memory import object_bytes
from tidelog.changelog.state_rows import StateRows
from tidelog.errors import StateSchemaError
from tidelog.state.event_time import MAX_WATERMARK, UNKNOWN
from tidelog.state.handles.timers import decode_time, encode_time
from tidelog.table.port import Table

KIND: Final = "timed-records"
MARKS: Final = "timed-marks"
"""The kind of rows that mark records, with the same keys and no value."""
NUMBER_BYTES: Final = 12
_AFTER_KEY: Final = -8 - NUMBER_BYTES

_BYTES: Final = 1 << 20
"""Values of so many bytes are read at a time."""

T = TypeVar("T", bound=tuple[Any, ...])
Held = tuple[int, int, Any]
"""Time, number and record, which in this order are sorted."""
Entry = tuple[int, bytes, Held]
"""Bucket, place, which is a key group with the encoded key, and what is held there."""


class TimedRows:
    """The rows of one state of one subtask."""

    __slots__ = ("_rows", "_state", "_table")

    def __init__(self, rows: StateRows, state: bytes, table: Table) -> None:
        self._rows, self._state, self._table = rows, state, table

    def put(self, entries: Sequence[Entry]) -> None:
        """Raises StateSchemaError for a record that is None: as a value of a row it is a delete."""
        records = [record for _, _, (_, _, record) in entries]
        check_records(records)
        self._rows.put_many(dict(zip(row_keys(self._state, entries), records, strict=True)))

    def delete(self, entries: Sequence[Entry]) -> None:
        self._rows.delete_many(row_keys(self._state, entries))

    def of_place(self, bucket: int, place: bytes) -> Iterator[Held]:
        """What the rows of a place hold, in order."""
        prefix = place[:2] + self._state + encode_time(bucket) + place[2:]
        for row, record in self._rows.scan(prefix, prefix_end(prefix)):
            yield _held(row, record)

    def of_group(self, bucket: int, group: bytes) -> Iterator[Entry]:
        """What the rows of a key group in a bucket hold."""
        for row, record in self.range_of_group(bucket, group):
            yield entry_of(group, row[ROW_PREFIX_BYTES:], record)

    def take(
        self, group: bytes, lower: bytes, upper: bytes, most: int | None = None
    ) -> list[tuple[bytes, Any]]:
        """Delete the first rows of a range of a key group; their keys behind the state, and values.

        The bounds are such keys too.
        """
        prefix = group + self._state
        scan = self._rows.scan(prefix + lower, prefix + upper)
        taken = list(scan) if most is None else first_of(scan, most)
        self._rows.delete_many([row for row, _ in taken])
        return [(row[ROW_PREFIX_BYTES:], value) for row, value in taken]

    def end(self, group: bytes) -> int:
        """A bucket from which on the table has no rows of a key group."""
        prefix, end, step = group + self._state, UNKNOWN, 1
        while end < MAX_WATERMARK:
            row = next(self._table.scan(prefix + encode_time(end), prefix_end(prefix)), None)
            if row is None:
                break
            # Ever further, so that there are few looks, however many buckets there are.
            bucket = decode_time(row[0][ROW_PREFIX_BYTES : ROW_PREFIX_BYTES + 8])
            end, step = min(bucket + step, MAX_WATERMARK), 2 * step
        return end

    def range_of_group(self, bucket: int, group: bytes) -> Iterator[tuple[bytes, Any]]:
        """The rows of a key group in a bucket, and their values."""
        prefix = group + self._state + encode_time(bucket)
        return self._rows.scan(prefix, prefix_end(prefix))


def check_records(records: list[Any]) -> None:
    """Raises StateSchemaError for None among records that are to be rows."""
    if any(record is None for record in records):
        raise StateSchemaError(
            "a record that a join or an enrichment keeps",
            expected="anything but None",
            found="None",
            action="filter such records out before it, or make tuples of them, as (key, None)",
        )


def first_of(rows: Iterator[T], most: int) -> list[T]:
    """The next rows, `most` or fewer where their last parts, values, take much memory."""
    taken: list[T] = []
    size = 0
    for row in islice(rows, most):
        taken.append(row)
        size += object_bytes(row[-1])
        if size >= _BYTES:
            break
    return taken


def row_keys(state: bytes, entries: Iterable[Entry]) -> list[bytes]:
    """The keys of the rows of records, in a state of this id."""
    keys: list[bytes] = []
    last: int | None = None
    for bucket, place, (time, number, _) in entries:
        if bucket != last:  # most have the bucket of the one before
            last, before = bucket, state + encode_time(bucket)
        after = encode_time(time) + number.to_bytes(NUMBER_BYTES, "big")
        keys.append(place[:2] + before + place[2:] + after)
    return keys


def entry_of(group: bytes, own: bytes, record: Any) -> Entry:
    """What a row's key behind the state and its value say."""
    return decode_time(own[:8]), group + own[8:_AFTER_KEY], _held(own, record)


def _held(row: bytes, record: Any) -> Held:
    number = int.from_bytes(row[-NUMBER_BYTES:], "big")
    return decode_time(row[_AFTER_KEY:-NUMBER_BYTES]), number, record
