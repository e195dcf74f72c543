"""Records by bucket of time, key and time: what an operator keeps until event time has passed it.

Invariants:
- a record is a row of its own, `bucket | key | time | number`, that nothing is read for and that is
  put once; the records of a key in a bucket are one range, and those of ended buckets are ranges;
- with `batched` it can instead be in a batch, one row for all records that a flush finds in its
  bucket and key group; batches become single rows when the records of one key are read and memory
  has no room for all of the key group;
- buckets from `_complete_from` on are complete: all of their records are in memory; of earlier ones
  those of a key are as soon as somebody has asked for them, and those of a key group after several
  such questions, unless they are too many;
- a record of a complete bucket becomes a row in a flush, so one that comes and goes between two is
  in none; those of other buckets are rows at once, and memory can lose them at any time;
- no number is given twice to a key, nor in one start.
"""

from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import chain, count
from typing import Any, Final

from tidelog.changelog.row_memory import RowSize
from tidelog.state.backend import KeyedBackend
from tidelog.state.event_time import UNKNOWN
from tidelog.state.handles.timers import encode_time
from tidelog.state.objects.values import UntypedValues
from tidelog.state.registry import Definition
from tidelog.state.timed_rows import (
    ALL_TIMES,
    KIND,
    MARKS,
    BucketMemory,
    Entry,
    TimedBatches,
    TimedRows,
    Times,
    entries_of,
    entry_of,
    first_of,
    with_numbers,
    without_numbers,
)
from tidelog.state.timeline import NUMBER, Records, TimedRecord, inserted

_START_BITS: Final = 48
STEP: Final = 1024
"""Records that are read, or taken away, without a pause."""
LOAD_AFTER: Final = 8
"""A bucket's records of a key group are read together after so many reads of its single keys."""
_BUCKET_BYTES: Final = 1_000
"""About what a bucket takes besides its records."""

NewRecord = tuple[bytes, int, int, Any]
"""Group key (the key group with the encoded key), bucket, time and record."""
KeyRecords = Records | Iterator[TimedRecord]
"""The records of a key in a bucket, or an iterator over those that were asked for."""


class TimedRecords:
    """The records of one state of one subtask.

    With `marks` records can be marked, and those that are do not come back when they expire. With
    `batched` there are no marks, nothing is removed, and no record is wanted when it expires.
    """

    def __init__(
        self,
        backend: KeyedBackend,
        name: str,
        schema: str,
        option: str,
        *,
        marks: bool = False,
        batched: bool = False,
    ) -> None:
        """`option` is what declares the types of the records."""
        self._groups = backend.owned.encoded()
        definition = Definition(name, KIND, ("msgpack", schema))
        self._values = UntypedValues(backend, definition, option)
        rows = self._values.rows(scanned=True, cached=False)
        self._rows, self._marks = TimedRows(rows, self._values.prefix, backend.table), None
        self._batches = TimedBatches.of(backend, name, schema, self._values) if batched else None
        if marks:
            info = backend.registry.register(f"{name}-marks", MARKS, (schema,))
            rows = backend.rows(lambda _: b"", lambda _: True, scanned=True, cached=False)
            self._marks = TimedRows(rows, info.id.to_bytes(2, "big"), backend.table)
        self._next = int(backend.seqno) << _START_BITS
        """The number of the next record. Those of a later start are greater, for between the two is
        a flush: what no flush has seen has no row."""
        self._buckets: dict[int, BucketMemory] = {}
        self._bucket_heap: list[int] = []
        """A heap of all buckets in memory, and of some that have left it: they can be thousands."""
        self._scanned_to = UNKNOWN
        """Earlier buckets have no rows."""
        stored_rows = filter(None, (self._rows, self._batches))
        self._complete_from = max(rows.end(self._groups) for rows in stored_rows)
        self._loads = True
        """Whether key groups are read, and put, together: not where memory had no room for them."""
        self._count = 0
        """Records in memory, and keys of which it is known that there are none."""
        self._unflushed_count = 0
        """Records in memory that no flush has seen."""
        self._unflushed: dict[int, BucketMemory] = {}
        """Buckets with records that no flush has seen."""
        self.updates = 0
        """Records added since the last flush that no row counts."""
        self.size = RowSize()
        """About how much memory one record takes."""
        backend.buffer.add_cache(self)
        backend.buffer.add_unflushed(self)

    def __len__(self) -> int:
        """The records that a flush would make rows of."""
        return self._unflushed_count

    @property
    def memory_bytes(self) -> int:
        """About how much memory the records take that no flush has seen."""
        return int(self._unflushed_count * self.size.bytes)

    @property
    def cached_bytes(self) -> int:
        """About how much memory the other records take, and all buckets."""
        records = (self._count - self._unflushed_count) * self.size.bytes
        return int(records) + len(self._buckets) * _BUCKET_BYTES

    def add(self, new: Sequence[NewRecord]) -> range:
        """Keep records; returns their numbers."""
        first = self._next
        if not new:
            return range(first, first)
        self._values.check_first(record for _, _, _, record in new)
        rows: list[Entry] = []
        last: int | None = None
        for (group_key, bucket, time, record), number in zip(new, count(first), strict=False):
            timed_record = time, number, record
            if bucket != last:
                last, memory = bucket, self._memory_of(bucket)
                by_key = memory.records
                unflushed = memory.unflushed if memory.complete else None
                if unflushed is not None:
                    self._unflushed[bucket] = memory
            if unflushed is None:
                rows.append((bucket, group_key, timed_record))
            else:
                unflushed[number] = group_key, timed_record
            before = by_key.get(group_key)
            if before:
                if timed_record < before[-1]:
                    by_key[group_key] = inserted(before, timed_record)
                else:
                    before.append(timed_record)
            elif before is None and (unflushed is not None or group_key[:2] in memory.loaded):
                by_key[group_key] = [timed_record]
            else:
                self._count -= 1  # it stays out of memory, or counts instead of what was not there
                if before is not None:
                    by_key[group_key] = [timed_record]
        self._next += len(new)
        self._rows.put(rows)
        self._count += len(new)
        self._unflushed_count += len(new) - len(rows)
        self.updates += len(new) - len(rows)
        group_key, _, _, record = new[0]
        self.size.sample(group_key, record)
        return range(first, self._next)

    def find(
        self, buckets: Iterable[int], group_key: bytes, times: Times = ALL_TIMES
    ) -> list[tuple[int, KeyRecords]]:
        """The records of a key in order, by bucket, without empty ones: all, or an iterator over
        those with a time between these where memory should not hold them all.

        What is changed by the caller afterwards, the iterator does not see.
        """
        by_bucket: list[tuple[int, KeyRecords]] = []
        for bucket in buckets:
            if (memory := self._buckets.get(bucket)) is None:
                if bucket >= self._complete_from:
                    continue
                memory = self._memory_of(bucket)
            records: KeyRecords | None = memory.records.get(group_key)
            if records is None and not memory.complete:
                records = self._read(memory, group_key, times)
            if records:
                by_bucket.append((bucket, records))
        return by_bucket

    def mark(self, bucket: int, group_key: bytes, records: Iterable[TimedRecord]) -> None:
        memory, entries = self._memory_of(bucket), list[Entry]()
        # Else several keys may have one number, of the subtasks that had them once.
        marked = memory.marked if memory.complete else set[int]()
        for record in records:
            if record[NUMBER] not in marked:
                marked.add(record[NUMBER])
                entries.append((bucket, group_key, record))
        self._put_marks(memory, entries)

    def remove(self, bucket: int, group_key: bytes, records: Sequence[TimedRecord]) -> None:
        """Take away the first records of a key, which these are."""
        memory = self._memory_of(bucket)
        self._delete(memory, entries_of(bucket, group_key, records))
        if group_key in memory.large:
            memory.large[group_key] += len(records)
            if memory.large[group_key] >= STEP:
                del memory.large[group_key]
        if group_key in memory.records:
            memory.remove(group_key, len(records))
            self._count -= len(records)

    def expire(self, last: int) -> Iterator[list[Entry]]:
        """Take away the records of all buckets up to the last one, some at a time.

        Between two steps state may be flushed and a barrier may pass. With `batched` the records
        need not be among what is given.
        """
        while True:
            end = min(last + 1, self._complete_from)
            if end > self._scanned_to:
                yield from self._expire_stored(end)
                self._scanned_to = max(self._scanned_to, end)
                for bucket in [bucket for bucket in self._buckets if bucket < end]:
                    self._count -= self._buckets.pop(bucket).count
            yield from self._expire_in_memory(last)
            if min(last + 1, self._complete_from) <= self._scanned_to:
                return

    def spill(self, limit: int) -> None:
        rows, remaining = list[Entry](), max(0, self._unflushed_count - limit)
        while self._unflushed_count > remaining:
            memory = next(iter(self._unflushed.values()))
            rows += self._spilled(memory, self._unflushed_count - remaining)
        self._rows.put(rows)

    def _spilled(self, memory: BucketMemory, limit: int) -> list[Entry]:
        """The first unflushed records of a bucket, which are to get rows; none that got batches."""
        records = memory.take_unflushed(limit)
        if not memory.unflushed:
            del self._unflushed[memory.bucket]
        self._unflushed_count -= len(records)
        if memory.rows_from is None:
            size, batches = self.size.bytes, self._batches if self._loads else None
            if batches and (batch_count := batches.put_together(memory, records, size)):
                self.updates -= batch_count
                return []
            _, (_, memory.rows_from, _) = records[0]
        self.updates -= len(records)
        entries = [(memory.bucket, *keyed_record) for keyed_record in records]
        if memory.marked:
            self._put_marks(memory, with_numbers(entries, memory.marked))
        return entries

    def evict(self, limit: int) -> int:
        """Forget records of the earliest bucket in memory: it is the first to expire."""
        if (bucket := self._earliest()) is None:
            return 0
        memory = self._buckets[bucket]
        before = self._unflushed_count
        if memory.unflushed:
            self._rows.put(self._spilled(memory, limit))
            return before - self._unflushed_count
        if memory.complete:
            self._complete_from, self._loads = max(self._complete_from, bucket + 1), False
            memory = self._buckets[bucket] = BucketMemory(bucket, False, 0, memory.records)
        evicted = memory.evict(limit)
        self._count -= evicted
        if not memory.records:
            del self._buckets[bucket]
        return max(1, evicted)

    def _put_marks(self, memory: BucketMemory, entries: list[Entry]) -> None:
        """Mark those that have rows; the others are when they get one."""
        assert self._marks is not None, "these records have no marks"
        self._marks.put(memory.with_rows(entries))

    def _delete(self, memory: BucketMemory, entries: list[Entry]) -> list[Entry]:
        """Delete the rows of entries that have any, which are returned; the others get none."""
        with_rows = memory.with_rows(entries)
        self._rows.delete(with_rows)
        if len(with_rows) < len(entries):
            for _, _, (_, number, _) in entries:
                if memory.unflushed.pop(number, None) is not None:
                    self._unflushed_count -= 1
        return with_rows

    def _earliest(self) -> int | None:
        while self._bucket_heap and self._bucket_heap[0] not in self._buckets:
            heappop(self._bucket_heap)
        return self._bucket_heap[0] if self._bucket_heap else None

    def _memory_of(self, bucket: int) -> BucketMemory:
        if (memory := self._buckets.get(bucket)) is None:
            complete = bucket >= self._complete_from
            memory = BucketMemory(bucket, complete, None if complete else 0)
            self._buckets[bucket] = memory
            heappush(self._bucket_heap, bucket)
        return memory

    def _read(self, memory: BucketMemory, group_key: bytes, times: Times) -> KeyRecords:
        """The records of a key from its rows; they stay in memory if they are not too many."""
        bucket, group = memory.bucket, group_key[:2]
        if group not in memory.loaded:
            reads = memory.reads[group] = memory.reads.get(group, 0) + 1
            if reads == 1 and self._batches is not None:
                self._unbatch(self._batches, memory, group)
            elif reads == LOAD_AFTER and self._loads:
                self._load(memory, group)
        if group in memory.loaded:
            return memory.records.get(group_key, [])
        if group_key not in memory.large:
            rows = self._rows.of_key(bucket, group_key)
            records = first_of(rows, STEP)
            if next(rows, None) is None:
                memory.records[group_key] = records
                self._count += max(1, len(records))
                return records
            memory.large[group_key] = 0
        return self._rows.of_key(bucket, group_key, times)

    def _unbatch(self, batches: TimedBatches, memory: BucketMemory, group: bytes) -> None:
        """Bring the batches of a key group in a bucket into memory, or make single rows of them."""
        entries = list(batches.of_group(memory.bucket, group))
        if entries and not (self._loads and self._load(memory, group, entries)):
            self._rows.put(entries)
            batches.delete_group(memory.bucket, group)

    def _load(self, memory: BucketMemory, group: bytes, batched: Sequence[Entry] = ()) -> bool:
        """Bring a key group's records in a bucket into memory; False: its rows are too many."""
        rows = self._rows.of_group(memory.bucket, group)
        entries = first_of(rows, STEP)
        if next(rows, None) is not None:
            return False
        by_key: dict[bytes, list[TimedRecord]] = {}
        for _, group_key, timed_record in chain(batched, entries):
            by_key.setdefault(group_key, []).append(timed_record)
        for group_key, records in by_key.items():
            if group_key not in memory.records:
                records.sort()
                memory.records[group_key] = records
                self._count += len(records)
        memory.loaded.add(group)
        return True

    def _expire_in_memory(self, last: int) -> Iterator[list[Entry]]:
        """As `expire`, from complete buckets; ends early where memory was dropped in a pause."""
        expired, count_since_pause = list[Entry](), 0
        while (bucket := self._earliest()) is not None and bucket <= last:
            memory = self._buckets[bucket]
            before = self._count
            one_by_one = self._batches is None or memory.rows_from is not None
            if one_by_one:
                expired += self._take_expired(memory)
            if not (one_by_one and memory.records):
                self._drop(memory)
                while len(memory.records) > STEP:  # to free all at once would hold the process
                    yield expired
                    expired = []
                    memory.evict(STEP)
            count_since_pause += before - self._count
            if count_since_pause >= STEP:
                yield expired
                expired, count_since_pause = [], 0
        if expired:
            yield expired

    def _drop(self, memory: BucketMemory) -> None:
        """Forget a bucket of which no single row is left: its batches and what is in memory go."""
        if self._batches is not None:
            self._batches.delete_rows(memory.batches)
        del self._buckets[memory.bucket]
        self._unflushed.pop(memory.bucket, None)
        self._unflushed_count -= len(memory.unflushed)
        self._count -= memory.count

    def _take_expired(self, memory: BucketMemory) -> list[Entry]:
        """Remove records of a bucket with their rows; returns those that are not marked."""
        entries = memory.take(STEP)
        self._count -= len(entries)
        # Where no flush has seen any and none is left, no row is to be deleted.
        may_have_rows = memory.rows_from is not None or memory.records
        deleted = self._delete(memory, entries) if may_have_rows else []
        if not memory.marked or self._marks is None:
            return entries
        self._marks.delete(with_numbers(deleted, memory.marked))
        return without_numbers(entries, memory.marked)

    def _expire_stored(self, end: int) -> Iterator[list[Entry]]:
        """As `expire`, from rows, key group by key group."""
        for group in self._groups:
            lower, upper = encode_time(self._scanned_to), encode_time(end)
            while self._batches is not None and self._batches.take(group, lower, upper, STEP):
                yield []
            while rows := self._rows.take(group, lower, upper, STEP):
                last, _ = rows[-1]
                first, lower = lower, last + b"\x00"
                marked = dict(self._marks.take(group, first, lower) if self._marks else ())
                yield [entry_of(group, suffix, r) for suffix, r in rows if suffix not in marked]
