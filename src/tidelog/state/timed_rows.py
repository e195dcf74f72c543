"""Records by bucket of time as rows: one for each, one for many, and what of a bucket is in memory.

Invariants:
- after the state's id the key of a record's row, or of its mark's, is `bucket | key | time |
  number`, so the rows of a key in a bucket are one range in the order of time, and so are those of
  several buckets;
- a batch is a row of the records that a flush finds in one bucket and one key group, its key
  `bucket | number of the first record`; its records are encoded as in rows of their own, so it
  becomes such rows without knowing their types;
- a key group has no more records in batches of a bucket than can be read at once;
- of a whole bucket in memory the records with the least numbers are in batches, later ones have
  rows of their own, and the last ones are fresh; each of the three may be none.

Format of batches: docs/internals/format.md, "State kinds".
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from math import inf
from typing import Any, Final, TypeVar

import msgspec

from tidelog.changelog.change import ROW_PREFIX_BYTES, prefix_end
from tidelog.changelog.row_memory import object_bytes
from tidelog.changelog.state_rows import StateRows
from tidelog.errors import StateSchemaError
from tidelog.state.backend import KeyedBackend
from tidelog.state.event_time import MAX_WATERMARK, UNKNOWN
from tidelog.state.handles.timers import decode_time, encode_time
from tidelog.state.objects.values import UntypedValues
from tidelog.state.timeline import Held, Records
from tidelog.table.port import Table

KIND: Final = "timed-records"
MARKS: Final = "timed-marks"
"""The kind of rows that mark records, with the same keys and no value."""
BATCHES: Final = "timed-batches"
"""The kind of rows that are batches."""
NUMBER_BYTES: Final = 12
_AFTER_KEY: Final = -8 - NUMBER_BYTES
_BYTES: Final = 1 << 20
"""Values of so many bytes are read at a time."""
Times = tuple[float, float]
"""The least and the greatest, each of which may be infinite."""
ALL_TIMES: Final[Times] = (-inf, inf)
MOST_BATCHED: Final = 8192
"""Records of a bucket and a key group in batches: all are read where one is looked for ..."""
BATCHED_BYTES: Final = 1 << 20
"""... and what they may take in memory."""

T = TypeVar("T", bound=tuple[Any, ...])
Entry = tuple[int, bytes, Held]
"""Bucket, place, which is a key group with the encoded key, and what is held there."""
Placed = tuple[bytes, Held]
"""A place, and what is held there."""
Batch = tuple[list[bytes], list[int], list[int], list[Any]]
"""Keys, times, numbers less that of the first, and records."""
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Batch).decode


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

    def of_place(self, bucket: int, place: bytes, times: Times = ALL_TIMES) -> Iterator[Held]:
        """What the rows of a place hold, in order: those with a time between these."""
        prefix = place[:2] + self._state + encode_time(bucket) + place[2:]
        # Of all records of a hot key only those near in time are read.
        lower, upper = (prefix + encode_time(_within(time)) for time in times)
        for row, record in self._rows.scan(lower, prefix_end(upper)):
            yield _held(row, record)

    def of_group(self, bucket: int, group: bytes) -> Iterator[Entry]:
        """What the rows of a key group in a bucket hold."""
        for row, record in self.range_of_group(bucket, group):
            yield entry_of(group, row[ROW_PREFIX_BYTES:], record)

    def take(
        self, group: bytes, lower: bytes, upper: bytes, most: int | None = None
    ) -> list[tuple[bytes, Any]]:
        """Delete the first rows of a range of a key group; their keys after the state, and values.

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


def _within(time: float) -> int:
    """The time, or the next one that a row can have."""
    return int(min(max(time, UNKNOWN), MAX_WATERMARK))


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
    """What a row's key after the state and its value say."""
    return decode_time(own[:8]), group + own[8:_AFTER_KEY], _held(own, record)


def _held(row: bytes, record: Any) -> Held:
    number = int.from_bytes(row[-NUMBER_BYTES:], "big")
    return decode_time(row[_AFTER_KEY:-NUMBER_BYTES]), number, record


class TimedBatches(TimedRows):
    """The batches of one state of one subtask."""

    __slots__ = ()

    @classmethod
    def of(
        cls, backend: KeyedBackend, name: str, schema: str, values: UntypedValues
    ) -> "TimedBatches":
        """The batches of the records of the state `name`, which are `values`."""
        info = backend.registry.register(batches_of(name), BATCHES, (schema,))

        def encode_many(batches: list[Batch]) -> list[bytes]:
            records = iter(values.encode_many(list(chain.from_iterable(b[3] for b in batches))))
            return [_encode((b[0], b[1], b[2], list(islice(records, len(b[0]))))) for b in batches]

        def decode(data: bytes) -> Batch:
            keys, times, after_first, records = _decode(data)
            return keys, times, after_first, list(map(values.decode, records))

        rows = backend.rows(
            lambda batch: encode_many([batch])[0],
            decode,
            scanned=True,
            cached=False,
            encode_many=encode_many,
        )
        return cls(rows, info.id.to_bytes(2, "big"), backend.table)

    def put_together(
        self, bucket: int, records: Sequence[Placed], batched: dict[bytes, int], size: float
    ) -> list[bytes]:
        """Put records of a bucket, in the order of their numbers, in one row for each key group.

        `batched` is how many records each key group has in batches, which is counted on; `size`
        the memory of one. Returns the keys of the rows: none, and nothing is put, where a key group
        would have too many. Raises as `TimedRows.put`.
        """
        of_group: defaultdict[bytes, list[Placed]] = defaultdict(list)
        for each in records:
            of_group[each[0][:2]].append(each)
        most = min(MOST_BATCHED, BATCHED_BYTES / max(1.0, size))
        if any(batched.get(group, 0) + len(some) > most for group, some in of_group.items()):
            return []
        rows: dict[bytes, Batch] = {}
        time = encode_time(bucket)
        for group, some in of_group.items():
            first = some[0][1][1]
            rows[group + self._state + time + first.to_bytes(NUMBER_BYTES, "big")] = batch = (
                [place[2:] for place, _ in some],
                [held[0] for _, held in some],
                [held[1] - first for _, held in some],
                [held[2] for _, held in some],
            )
            check_records(batch[-1])
            batched[group] = batched.get(group, 0) + len(some)
        self._rows.put_many(rows)
        return list(rows)

    def delete_rows(self, rows: Iterable[bytes]) -> None:
        self._rows.delete_many(rows)

    def of_group(self, bucket: int, group: bytes) -> Iterator[Entry]:
        for row, batch in self.range_of_group(bucket, group):
            yield from _entries(group, row[ROW_PREFIX_BYTES:], batch)

    def delete_group(self, bucket: int, group: bytes) -> None:
        """Delete the batches of a key group in a bucket."""
        self._rows.delete_many([row for row, _ in self.range_of_group(bucket, group)])


def batches_of(name: str) -> str:
    """The name of the state with the batches of the records of a state."""
    return f"{name}-batches"


def keys_of(data: bytes) -> list[bytes]:
    """The keys of a batch's records, from its value; raises MsgspecError for what is none."""
    keys: list[bytes] = _decode(data)[0]
    return keys


def stored_entries(group: bytes, own: bytes, data: bytes) -> list[Entry]:
    """The records of a stored batch, each with its value still encoded.

    `own` is the row key without key group and state id, `data` the row's value.
    """
    return list(_entries(group, own, _decode(data)))


def _entries(group: bytes, own: bytes, batch: Batch) -> Iterator[Entry]:
    bucket, first = decode_time(own[:8]), int.from_bytes(own[8:], "big")
    for key, time, after_first, record in zip(*batch, strict=True):
        yield bucket, group + key, (time, first + after_first, record)


@dataclass(slots=True)
class Bucket:
    """What of one bucket is in memory."""

    whole: bool
    rows_from: int | None
    """The first number of a record with a row of its own; None: none has. Of a bucket that is not
    whole all may have some: 0."""
    records: dict[bytes, Records] = field(default_factory=dict)
    """By key group and encoded key."""
    marked: set[int] = field(default_factory=set)
    """Numbers of marked records of a whole bucket."""
    fresh: dict[int, Placed] = field(default_factory=dict)
    """By number: those of a whole bucket that no flush has made rows yet."""
    batches: list[bytes] = field(default_factory=list)
    """The rows of a whole bucket that are batches."""
    batched: dict[bytes, int] = field(default_factory=dict)
    """By key group, how many records they have."""
    reads: dict[bytes, int] = field(default_factory=dict)
    """By key group, how often the rows of a single key were read."""
    loaded: set[bytes] = field(default_factory=set)
    """Key groups of which all records are in memory, of a bucket that is not whole."""
    large: dict[bytes, int] = field(default_factory=dict)
    """Places with more records than stay in memory, and how many were taken away since it was seen
    that they are: they are not read again and again to see it."""

    @property
    def held(self) -> int:
        """What it counts for in memory."""
        return sum([max(1, len(held)) for held in self.records.values()])

    def evict(self, limit: int) -> int:
        """Forget the records of so many places at most; what they counted for in memory.

        The bucket is not whole any more.
        """
        places = list(islice(self.records, limit))
        self.loaded.difference_update([place[:2] for place in places])
        return sum([max(1, len(self.records.pop(place))) for place in places])

    def take_fresh(self, most: int) -> list[Placed]:
        """The first fresh records, which count as such no more."""
        if len(self.fresh) <= most:
            taken, self.fresh = list(self.fresh.values()), {}
            return taken
        return [self.fresh.pop(number) for number in list(islice(self.fresh, most))]

    def with_rows(self, entries: list[Entry]) -> list[Entry]:
        """Entries of this bucket, without those that have no rows of their own."""
        fresh, rows_from = self.fresh, self.rows_from
        if rows_from is None:
            return []
        if not fresh and not self.batches:
            return entries
        return [e for e in entries if e[2][1] >= rows_from and e[2][1] not in fresh]
