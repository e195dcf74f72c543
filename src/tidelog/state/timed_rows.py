"""Records by bucket of time as rows, one for each or one for many, and what of them is in memory.

Invariants:
- after the state's id the key of a record's row, or of its mark's, is `bucket | key | time |
  number`, so the rows of a key in a bucket are one range in the order of time, and so are those of
  several buckets;
- a batch is a row of the records that a flush finds in one bucket and one key group, its key
  `bucket | number of the first record`; its records are encoded as in rows of their own, so it
  becomes such rows without knowing their types;
- a key group has no more records in batches of a bucket than can be read at once;
- of a bucket that is complete in memory the records with the lowest numbers are in batches, later
  ones have rows of their own, and the last ones are not flushed; each of the three may be none.

Format of batches: docs/internals/format.md, "State kinds".
"""

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from math import inf
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from tidelog.changelog.change import ROW_PREFIX_BYTES, prefix_end
from tidelog.changelog.row_memory import object_bytes
from tidelog.changelog.state_rows import StateRows
from tidelog.errors import StateSchemaError
from tidelog.state.backend import KeyedBackend
from tidelog.state.event_time import MAX_WATERMARK, UNKNOWN
from tidelog.state.handles.timers import decode_time, encode_time
from tidelog.state.objects.values import UntypedValues
from tidelog.state.timeline import NUMBER, Records, TimedRecord, divided
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
"""The earliest and the latest, each of which may be infinite."""
ALL_TIMES: Final[Times] = (-inf, inf)
MAX_BATCHED: Final = 8192
"""Records of a bucket and a key group in batches: to look for one is to read all."""
BATCHED_BYTES: Final = 1 << 20
"""Memory that the records of a bucket and a key group in batches may take."""

T = TypeVar("T", bound=tuple[Any, ...])
Entry = tuple[int, bytes, TimedRecord]
"""Bucket, group key (the key group with the encoded key) and timed record."""
_TIMED_RECORD: Final = 2
"""Index of the timed record in an entry."""
KeyedRecord = tuple[bytes, TimedRecord]
"""Group key and timed record."""


class TimedBatch(NamedTuple):
    """The value of a row that is a batch; all of its lists are of one length."""

    keys: list[bytes]
    times: list[int]
    after_first: list[int]
    """Numbers less that of the first record."""
    records: list[Any]


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(TimedBatch).decode


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

    def of_key(
        self, bucket: int, group_key: bytes, times: Times = ALL_TIMES
    ) -> Iterator[TimedRecord]:
        """The records of a key in order, from its rows: those with a time between these."""
        prefix = group_key[:2] + self._state + encode_time(bucket) + group_key[2:]
        # Of all records of a hot key only those near in time are read.
        earliest, latest = map(_within, times)
        upper = prefix_end(prefix + encode_time(latest))
        for row, record in self._rows.scan(prefix + encode_time(earliest), upper):
            yield _timed_record(row, record)

    def of_group(self, bucket: int, group: bytes) -> Iterator[Entry]:
        """The records of a key group in a bucket, from its rows."""
        for row, record in self.range_of_group(bucket, group):
            yield entry_of(group, row[ROW_PREFIX_BYTES:], record)

    def take(
        self, group: bytes, lower: bytes, upper: bytes, limit: int | None = None
    ) -> list[tuple[bytes, Any]]:
        """Delete the first rows of a range of a key group; returns their suffixes and values.

        A suffix is what a row's key has after the state's id; the bounds are such suffixes too.
        """
        prefix = group + self._state
        scan = self._rows.scan(prefix + lower, prefix + upper)
        rows = list(scan) if limit is None else first_of(scan, limit)
        self._rows.delete_many(dict(rows))
        return [(row[ROW_PREFIX_BYTES:], value) for row, value in rows]

    def end(self, groups: Iterable[bytes]) -> int:
        """A bucket from which on the table has no rows of these key groups."""
        return max(map(self._end, groups))

    def _end(self, group: bytes) -> int:
        prefix, end, step = group + self._state, UNKNOWN, 1
        while end < MAX_WATERMARK:
            first = next(self._table.scan(prefix + encode_time(end), prefix_end(prefix)), None)
            if first is None:
                break
            # Ever further, so that there are few looks, however many buckets there are.
            row, _ = first
            bucket = decode_time(row[ROW_PREFIX_BYTES : ROW_PREFIX_BYTES + 8])
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
    if type(None) in set(map(type, records)):
        raise StateSchemaError(
            "a record that a join or an enrichment keeps",
            expected="anything but None",
            found="None",
            action="filter such records out before it, or make tuples of them, as (key, None)",
        )


def first_of(rows: Iterator[T], limit: int) -> list[T]:
    """The next rows, `limit` or fewer where their last parts, values, take much memory."""
    chunk: list[T] = []
    size = 0
    for row in islice(rows, limit):
        chunk.append(row)
        size += object_bytes(row[-1])
        if size >= _BYTES:
            break
    return chunk


def row_keys(state: bytes, entries: Iterable[Entry]) -> list[bytes]:
    """The keys of the rows of records, in a state of this id."""
    keys: list[bytes] = []
    last: int | None = None
    for bucket, group_key, (time, number, _) in entries:
        if bucket != last:  # most have the bucket of the one before
            last, before = bucket, state + encode_time(bucket)
        after = encode_time(time) + number.to_bytes(NUMBER_BYTES, "big")
        keys.append(group_key[:2] + before + group_key[2:] + after)
    return keys


def entry_of(group: bytes, suffix: bytes, record: Any) -> Entry:
    """The entry of a row with this record; `suffix` is what its key has after the state's id."""
    group_key = group + suffix[8:_AFTER_KEY]
    return decode_time(suffix[:8]), group_key, _timed_record(suffix, record)


def _timed_record(row: bytes, record: Any) -> TimedRecord:
    """The timed record of a row by the end of its key."""
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

        def encode_many(batches: list[TimedBatch]) -> list[bytes]:
            all_records = chain.from_iterable(map(attrgetter("records"), batches))
            encoded = iter(values.encode_many(list(all_records)))
            return [
                _encode(batch._replace(records=list(islice(encoded, len(batch.keys)))))
                for batch in batches
            ]

        def decode(data: bytes) -> TimedBatch:
            batch = _decode(data)
            return batch._replace(records=list(map(values.decode, batch.records)))

        rows = backend.rows(
            lambda batch: encode_many([batch])[0],
            decode,
            scanned=True,
            cached=False,
            encode_many=encode_many,
        )
        return cls(rows, info.id.to_bytes(2, "big"), backend.table)

    def put_together(
        self, memory: "BucketMemory", records: Sequence[KeyedRecord], size: float
    ) -> int:
        """Put records of a bucket, in the order of their numbers, in one row for each key group.

        `size` is the memory of one. Returns the number of the rows: 0, and nothing is put, where a
        key group would have too many records in batches. Raises as `TimedRows.put`.
        """
        by_group: defaultdict[bytes, list[KeyedRecord]] = defaultdict(list)
        for keyed_record in records:
            group_key, _ = keyed_record
            by_group[group_key[:2]].append(keyed_record)
        limit = min(MAX_BATCHED, BATCHED_BYTES / max(1.0, size))
        batched = memory.batched
        for group, of_group in by_group.items():
            if batched.get(group, 0) + len(of_group) > limit:
                return 0
        rows: dict[bytes, TimedBatch] = {}
        bucket = encode_time(memory.bucket)
        for group, of_group in by_group.items():
            _, (_, first, _) = of_group[0]
            batch = _batch(of_group, first)
            check_records(batch.records)
            rows[group + self._state + bucket + first.to_bytes(NUMBER_BYTES, "big")] = batch
            batched[group] = batched.get(group, 0) + len(of_group)
        self._rows.put_many(rows)
        memory.batches += rows
        return len(rows)

    def delete_rows(self, rows: Iterable[bytes]) -> None:
        self._rows.delete_many(rows)

    def of_group(self, bucket: int, group: bytes) -> Iterator[Entry]:
        for row, batch in self.range_of_group(bucket, group):
            yield from _entries(group, row[ROW_PREFIX_BYTES:], batch)

    def delete_group(self, bucket: int, group: bytes) -> None:
        self._rows.delete_many([row for row, _ in self.range_of_group(bucket, group)])


def _batch(records: list[KeyedRecord], first: int) -> TimedBatch:
    """The batch of records of a bucket and a key group, of which the first has this number."""
    return TimedBatch(
        [group_key[2:] for group_key, _ in records],
        [time for _, (time, _, _) in records],
        [number - first for _, (_, number, _) in records],
        [record for _, (_, _, record) in records],
    )


def batches_of(name: str) -> str:
    """The name of the state with the batches of the records of a state."""
    return f"{name}-batches"


def keys_of(data: bytes) -> list[bytes]:
    """The keys of a batch's records, from its value; raises MsgspecError for what is none."""
    return _decode(data).keys


def stored_entries(group: bytes, suffix: bytes, data: bytes) -> list[Entry]:
    """The records of a stored batch, each with its value still encoded.

    `suffix` is what the row's key has after the state's id, `data` the row's value.
    """
    return list(_entries(group, suffix, _decode(data)))


def _entries(group: bytes, suffix: bytes, batch: TimedBatch) -> Iterator[Entry]:
    bucket, first = decode_time(suffix[:8]), int.from_bytes(suffix[8:], "big")
    for key, time, after_first, record in zip(*batch, strict=True):
        yield bucket, group + key, (time, first + after_first, record)


def entries_of(bucket: int, group_key: bytes, records: Iterable[TimedRecord]) -> list[Entry]:
    """The entries of records of one key in one bucket."""
    return [(bucket, group_key, record) for record in records]


def with_numbers(entries: list[Entry], numbers: Container[int]) -> list[Entry]:
    """The entries of records with these numbers."""
    return [entry for entry in entries if entry[_TIMED_RECORD][NUMBER] in numbers]


def without_numbers(entries: list[Entry], numbers: Container[int]) -> list[Entry]:
    """The entries of records with other numbers."""
    return [entry for entry in entries if entry[_TIMED_RECORD][NUMBER] not in numbers]


@dataclass(slots=True)
class BucketMemory:
    """What of one bucket is in memory."""

    bucket: int
    complete: bool
    """All records of the bucket are here."""
    rows_from: int | None
    """The first number of a record with a row of its own; None: none has. Of a bucket that is not
    complete all may have some: 0."""
    records: dict[bytes, Records] = field(default_factory=dict)
    """By group key."""
    marked: set[int] = field(default_factory=set)
    """Numbers of marked records of a complete bucket."""
    unflushed: dict[int, KeyedRecord] = field(default_factory=dict)
    """By number: those of a complete bucket that no flush has made rows yet."""
    batches: list[bytes] = field(default_factory=list)
    """The rows of a complete bucket that are batches."""
    batched: dict[bytes, int] = field(default_factory=dict)
    """By key group, how many records its batches have."""
    reads: dict[bytes, int] = field(default_factory=dict)
    """By key group, how often the rows of a single key were read."""
    loaded: set[bytes] = field(default_factory=set)
    """Key groups of which all records are in memory, of a bucket that is not complete."""
    large: dict[bytes, int] = field(default_factory=dict)
    """Group keys with more records than stay in memory, and how many of these were removed since
    they were counted: they are counted again when many were."""

    @property
    def count(self) -> int:
        """What the bucket has in memory: its records, and the keys that are known to have none."""
        return sum([max(1, len(records)) for records in self.records.values()])

    def evict(self, limit: int) -> int:
        """Forget the records of so many keys at most; returns by how much `count` is less.

        The bucket is not complete any more.
        """
        group_keys = list(islice(self.records, limit))
        self.loaded.difference_update([group_key[:2] for group_key in group_keys])
        return sum([max(1, len(self.records.pop(group_key))) for group_key in group_keys])

    def take(self, limit: int) -> list[Entry]:
        """Remove records, `limit` or some more, or all where they are fewer."""
        entries: list[Entry] = []
        while self.records and len(entries) < limit:
            group_key, records = self.records.popitem()
            first, rest = divided(records, limit)
            if rest:
                self.records[group_key] = rest
            entries += entries_of(self.bucket, group_key, first)
        return entries

    def remove(self, group_key: bytes, count: int) -> None:
        """Remove the first records of a key, which has so many or more."""
        _, self.records[group_key] = divided(self.records[group_key], count)
        if not self.records[group_key]:
            del self.records[group_key]

    def take_unflushed(self, limit: int) -> list[KeyedRecord]:
        """The first records that no flush has seen; they do not count as such any more."""
        if len(self.unflushed) <= limit:
            records, self.unflushed = list(self.unflushed.values()), {}
            return records
        return [self.unflushed.pop(number) for number in list(islice(self.unflushed, limit))]

    def with_rows(self, entries: list[Entry]) -> list[Entry]:
        """Entries of this bucket, without those that have no rows of their own."""
        unflushed, rows_from = self.unflushed, self.rows_from
        if rows_from is None:
            return []
        if not unflushed and not self.batches:
            return entries
        with_rows: list[Entry] = []
        for entry in entries:
            _, _, (_, number, _) = entry
            if number >= rows_from and number not in unflushed:
                with_rows.append(entry)
        return with_rows
