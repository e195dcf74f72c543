"""Records by bucket of time, key and time: what an operator keeps until event time has passed it.

Invariants:
- a record is a row of its own, `bucket | key | time | number`, that nothing is read for and that is
  put once; the records of a key in a bucket are one range, and those of ended buckets are ranges;
- with `batched` it can instead be in a batch, one row for all records that a flush finds in its
  bucket and key group; batches become single rows when the records of one key are read and memory
  has no room for all of the key group;
- buckets from `_whole_from` on are whole: all of their records are in memory; of earlier ones those
  of a key are as soon as somebody has asked for them, and those of a key group after several such
  questions, unless they are too many;
- a record of a whole bucket becomes a row in a flush, so one that comes and goes between two is in
  none; those of other buckets are rows at once, and memory can lose them at any time;
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
from tidelog.state.schema.evolution import IN_BATCHES
from tidelog.state.timed_rows import (
    ALL_TIMES,
    KIND,
    MARKS,
    Bucket,
    Entry,
    TimedBatches,
    TimedRows,
    Times,
    entry_of,
    first_of,
)
from tidelog.state.timeline import Held, Records, divided, inserted

_START_BITS: Final = 48
STEP: Final = 1024
"""Records that are read, or taken away, without a pause."""
LOAD_AFTER: Final = 8
"""A bucket's records of a key group are read together after so many reads of its single keys."""
_BUCKET_BYTES: Final = 1_000
"""About what a bucket takes besides its records."""

NewRecord = tuple[bytes, int, int, Any]
"""Place, bucket, time and record."""
Found = Records | Iterator[Held]


class TimedRecords:
    """The records of one state of one subtask.

    A place is a key group with the encoded key. With `marks` records can be marked, and those that
    are do not come back when they expire. With `batched` there are no marks, nothing is removed,
    and no record is wanted when it expires.
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
        table = backend.table
        stored = ("msgpack", schema, *((IN_BATCHES,) if batched else ()))
        self._values = UntypedValues(backend, (name, KIND, stored), option)
        rows = self._values.rows(scanned=True, cached=False)
        self._rows, self._marks = TimedRows(rows, self._values.prefix, table), None
        self._batches = TimedBatches.of(backend, name, schema, self._values) if batched else None
        if marks:
            info = backend.registry.register(f"{name}-marks", MARKS, (schema,))
            rows = backend.rows(lambda _: b"", lambda _: True, scanned=True, cached=False)
            self._marks = TimedRows(rows, info.id.to_bytes(2, "big"), table)
        self._next = int(backend.seqno) << _START_BITS
        """The number of the next record. Those of a later start are greater, for between the two is
        a flush: what no flush has seen has no row."""
        self._buckets: dict[int, Bucket] = {}
        self._in_order: list[int] = []
        """A heap of all buckets in memory, and of some that have left it: they can be thousands."""
        self._scanned_to = UNKNOWN
        """Earlier buckets have no rows."""
        both = (self._rows, self._batches) if self._batches else (self._rows,)
        self._whole_from = max(rows.end(group) for rows in both for group in self._groups)
        self._loads = True
        """Whether key groups are read, and put, together: not where memory had no room for them."""
        self._held = self._fresh_held = 0
        """Records in memory, and keys of which it is known that there are none; fresh records."""
        self._fresh: dict[int, Bucket] = {}
        """Buckets with fresh records."""
        self.updates = 0
        """Records added since the last flush that no row counts."""
        self.size = RowSize()
        """About how much memory one record takes."""
        backend.buffer.add_cache(self)
        backend.buffer.add_unflushed(self)

    def __len__(self) -> int:
        """The records that a flush would make rows of."""
        return self._fresh_held

    @property
    def memory_bytes(self) -> int:
        """About how much memory the records take that no flush has seen."""
        return int(self._fresh_held * self.size.bytes)

    @property
    def cached_bytes(self) -> int:
        """About how much memory the other records take, and all buckets."""
        records = (self._held - self._fresh_held) * self.size.bytes
        return int(records) + len(self._buckets) * _BUCKET_BYTES

    def add(self, new: Sequence[NewRecord]) -> range:
        """Keep records; returns their numbers."""
        first = self._next
        if not new:
            return range(first, first)
        self._values.check_first(record for _, _, _, record in new)
        rows: list[Entry] = []
        last: int | None = None
        for (place, bucket, time, record), number in zip(new, count(first), strict=False):
            held = time, number, record
            if bucket != last:
                last, kept = bucket, self._bucket(bucket)
                of_place, fresh = kept.records, kept.fresh if kept.whole else None
                if fresh is not None:
                    self._fresh[bucket] = kept
            if fresh is None:
                rows.append((bucket, place, held))
            else:
                fresh[number] = place, held
            before = of_place.get(place)
            if before:
                if held < before[-1]:
                    of_place[place] = inserted(before, held)
                else:
                    before.append(held)
            elif before is None and (fresh is not None or place[:2] in kept.loaded):
                of_place[place] = [held]
            else:
                self._held -= 1  # it stays out of memory, or counts instead of what was not there
                if before is not None:
                    of_place[place] = [held]
        fresh_count = len(new) - len(rows)
        self._next += len(new)
        self._rows.put(rows)
        self._held += len(new)
        self._fresh_held += fresh_count
        self.updates += fresh_count
        self.size.sample(new[0][0], new[0][3])
        return range(first, self._next)

    def find(
        self, buckets: Iterable[int], place: bytes, times: Times = ALL_TIMES
    ) -> list[tuple[int, Found]]:
        """The records of a place in order, by bucket, without empty ones: all, or an iterator over
        those with a time between these where memory should not hold them all.

        What is changed by the caller afterwards, the iterator does not see.
        """
        found: list[tuple[int, Found]] = []
        for bucket in buckets:
            if (kept := self._buckets.get(bucket)) is None:
                if bucket >= self._whole_from:
                    continue
                kept = self._bucket(bucket)
            held: Found | None = kept.records.get(place)
            if held is None and not kept.whole:
                held = self._read(kept, bucket, place, times)
            if held:
                found.append((bucket, held))
        return found

    def mark(self, bucket: int, place: bytes, held: Iterable[Held]) -> None:
        kept = self._bucket(bucket)
        if kept.whole:
            held = [each for each in held if each[1] not in kept.marked]
            kept.marked.update([number for _, number, _ in held])
        # Else several keys may have one number, of the subtasks that had them once.
        self._put_marks(kept, [(bucket, place, each) for each in held])

    def remove(self, bucket: int, place: bytes, held: Sequence[Held]) -> None:
        """Take away records of a place, which its first ones are."""
        kept = self._bucket(bucket)
        self._delete(kept, [(bucket, place, each) for each in held])
        if place in kept.large:
            kept.large[place] += len(held)
            if kept.large[place] >= STEP:
                del kept.large[place]
        if (here := kept.records.get(place)) is not None:
            _, kept.records[place] = divided(here, len(held))
            self._held -= len(held)
            if not kept.records[place]:
                del kept.records[place]

    def expire(self, last: int) -> Iterator[list[Entry]]:
        """Take away the records of all buckets up to the last one, some at a time.

        Between two steps state may be flushed and a barrier may pass. With `batched` the records
        need not be among what is given.
        """
        while True:
            end = min(last + 1, self._whole_from)
            if end > self._scanned_to:
                yield from self._expire_stored(end)
                self._scanned_to = max(self._scanned_to, end)
                for bucket in [bucket for bucket in self._buckets if bucket < end]:
                    self._held -= self._buckets.pop(bucket).held
            yield from self._expire_held(last)
            if min(last + 1, self._whole_from) <= self._scanned_to:
                return

    def spill(self, most: int) -> None:
        rows: list[Entry] = []
        left = max(0, self._fresh_held - most)
        while self._fresh_held > left:
            bucket, kept = next(iter(self._fresh.items()))
            rows += self._spilled(bucket, kept, self._fresh_held - left)
        self._rows.put(rows)

    def _spilled(self, bucket: int, kept: Bucket, limit: int) -> list[Entry]:
        """The first fresh records of a bucket, which are to get rows; none that got batches."""
        some = kept.take_fresh(limit)
        if not kept.fresh:
            del self._fresh[bucket]
        self._fresh_held -= len(some)
        if kept.rows_from is None:
            size, batches = self.size.bytes, self._batches if self._loads else None
            if batches and (made := batches.put_together(bucket, some, kept.batched, size)):
                kept.batches += made
                self.updates -= len(made)
                return []
            kept.rows_from = some[0][1][1]
        self.updates -= len(some)
        if kept.marked:
            marked = [each for each in some if each[1][1] in kept.marked]
            self._put_marks(kept, [(bucket, *each) for each in marked])
        return [(bucket, *each) for each in some]

    def evict(self, limit: int) -> int:
        """Forget records of the earliest bucket in memory: it is the first to expire."""
        if (bucket := self._earliest()) is None:
            return 0
        kept = self._buckets[bucket]
        before = self._fresh_held
        if kept.fresh:
            self._rows.put(self._spilled(bucket, kept, limit))
            return before - self._fresh_held
        if kept.whole:
            self._whole_from, self._loads = max(self._whole_from, bucket + 1), False
            kept = self._buckets[bucket] = Bucket(False, 0, kept.records)
        count = kept.evict(limit)
        self._held -= count
        if not kept.records:
            del self._buckets[bucket]
        return max(1, count)

    def _put_marks(self, kept: Bucket, entries: list[Entry]) -> None:
        """Mark those that have rows; the others are when they get one."""
        assert self._marks is not None, "these records have no marks"
        self._marks.put(kept.with_rows(entries))

    def _delete(self, kept: Bucket, entries: list[Entry]) -> list[Entry]:
        """Delete the rows of entries that have any, which are returned; the others get none."""
        stored = kept.with_rows(entries)
        self._rows.delete(stored)
        if len(stored) < len(entries):
            for _, _, (_, number, _) in entries:
                if kept.fresh.pop(number, None) is not None:
                    self._fresh_held -= 1
        return stored

    def _earliest(self) -> int | None:
        """The earliest bucket in memory."""
        while self._in_order and self._in_order[0] not in self._buckets:
            heappop(self._in_order)
        return self._in_order[0] if self._in_order else None

    def _bucket(self, bucket: int) -> Bucket:
        if (kept := self._buckets.get(bucket)) is None:
            whole = bucket >= self._whole_from
            kept = self._buckets[bucket] = Bucket(whole, None if whole else 0)
            heappush(self._in_order, bucket)
        return kept

    def _read(self, kept: Bucket, bucket: int, place: bytes, times: Times) -> Found:
        """The records of a place from its rows; they stay in memory if they are not too many."""
        group = place[:2]
        if group not in kept.loaded:
            reads = kept.reads[group] = kept.reads.get(group, 0) + 1
            if reads == 1 and self._batches is not None:
                self._unbatch(self._batches, kept, bucket, group)
            elif reads == LOAD_AFTER and self._loads:
                self._load(kept, bucket, group)
        if group in kept.loaded:
            return kept.records.get(place, [])
        if place not in kept.large:
            rows = self._rows.of_place(bucket, place)
            held = first_of(rows, STEP)
            if next(rows, None) is None:
                kept.records[place] = held
                self._held += max(1, len(held))
                return held
            kept.large[place] = 0
        return self._rows.of_place(bucket, place, times)

    def _unbatch(self, batches: TimedBatches, kept: Bucket, bucket: int, group: bytes) -> None:
        """Bring the batches of a key group in a bucket into memory, or make single rows of them."""
        entries = list(batches.of_group(bucket, group))
        if entries and not (self._loads and self._load(kept, bucket, group, entries)):
            self._rows.put(entries)
            batches.delete_group(bucket, group)

    def _load(self, kept: Bucket, bucket: int, group: bytes, batched: Sequence[Entry] = ()) -> bool:
        """Read a key group's single rows in a bucket too; False: they are too many for memory."""
        rows = self._rows.of_group(bucket, group)
        entries = first_of(rows, STEP)
        if next(rows, None) is not None:
            return False
        read: dict[bytes, list[Held]] = {}
        for _, place, held in chain(batched, entries):
            read.setdefault(place, []).append(held)
        for place, records in read.items():
            if place not in kept.records:
                records.sort()
                kept.records[place] = records
                self._held += len(records)
        kept.loaded.add(group)
        return True

    def _expire_held(self, last: int) -> Iterator[list[Entry]]:
        """From whole buckets, in their order; ends early where memory was dropped in a pause."""
        taken: list[Entry] = []
        seen = 0
        while (bucket := self._earliest()) is not None and bucket <= last:
            kept = self._buckets[bucket]
            before = self._held
            stored = self._batches is None or kept.rows_from is not None
            if stored:
                taken += self._taken(bucket, kept)
            if not (stored and kept.records):
                self._end(bucket, kept)
                while len(kept.records) > STEP:  # to free all at once would hold the process
                    yield taken
                    taken = []
                    kept.evict(STEP)
            seen += before - self._held
            if seen >= STEP:
                yield taken
                taken, seen = [], 0
        if taken:
            yield taken

    def _end(self, bucket: int, kept: Bucket) -> None:
        """No row of a bucket is left: what is left of it in memory goes."""
        if self._batches is not None:
            self._batches.delete_rows(kept.batches)
        del self._buckets[bucket]
        self._fresh.pop(bucket, None)
        self._fresh_held -= len(kept.fresh)
        self._held -= kept.held

    def _taken(self, bucket: int, kept: Bucket) -> list[Entry]:
        """Records of a bucket, which have no rows any more, without the marked ones."""
        taken: list[Entry] = []
        while kept.records and len(taken) < STEP:
            place, held = kept.records.popitem()
            first, others = divided(held, STEP)
            if others:
                kept.records[place] = others
            taken += [(bucket, place, each) for each in first]
        self._held -= len(taken)
        # Where no flush has seen any and none is left, there is nothing to delete or to forget.
        stored = self._delete(kept, taken) if kept.rows_from is not None or kept.records else []
        if not kept.marked or self._marks is None:
            return taken
        self._marks.delete([entry for entry in stored if entry[2][1] in kept.marked])
        return [entry for entry in taken if entry[2][1] not in kept.marked]

    def _expire_stored(self, end: int) -> Iterator[list[Entry]]:
        """From rows, key group by key group."""
        for group in self._groups:
            at, upper = encode_time(self._scanned_to), encode_time(end)
            while self._batches is not None and self._batches.take(group, at, upper, STEP):
                yield []
            while taken := self._rows.take(group, at, upper, STEP):
                first, at = at, taken[-1][0] + b"\x00"
                marks = self._marks.take(group, first, at) if self._marks is not None else ()
                marked = {own for own, _ in marks}
                yield [entry_of(group, own, r) for own, r in taken if own not in marked]
