"""Joins of two keyed streams in event time: pairs are emitted as soon as both records are there.

Invariants: two records of a key that go together are one pair, made by the one that comes last; a
record that an outer join must not lose and that was in no pair is emitted once, alone, when its
bucket of time has ended, and before later pairs of its key; neither side keeps a record of an ended
bucket. A record is marked when it is first in a pair, on sides that an outer join keeps, so no
record is ever written again.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Final, Literal, cast

from tidelog.runtime.channels.copies import copies_of
from tidelog.runtime.channels.messages import Batch, KeyedBatch
from tidelog.runtime.operators.operator import Operator, OperatorContext, event_times
from tidelog.runtime.operators.spans import LEFT, RIGHT, JoinSpan
from tidelog.runtime.operators.turn import OUTPUT_BYTES, OUTPUT_RECORDS, PAUSE, REST, Turn
from tidelog.state.timed_records import STEP, KeyRecords, NewRecord, TimedRecords
from tidelog.state.timed_rows import Entry, entries_of, first_of, with_numbers, without_numbers
from tidelog.state.timeline import EVENT_TIME, RECORD, TimedRecord, Timeline, between

JoinKind = Literal["inner", "left", "outer"]
EMITS_ALONE: Final[dict[str, tuple[int, ...]]] = {
    "inner": (),
    "left": (LEFT,),
    "outer": (LEFT, RIGHT),
}
"""The sides whose records are emitted also without a partner."""

_AT_ONCE: Final = 256
"""Records kept at once, counted for each of their windows: no flush can free them before."""
_LOOK_EVERY: Final = 64
"""Records that look for partners before the turn is looked at."""
_BUCKETS_AT_ONCE: Final = 64
"""So many ended buckets are looked into for each key; more of them are all emptied first."""
_NONE_ENDED: Final = -(1 << 64)
_BUCKET: Final = 1
"""Index of the bucket in a new record."""


class _MarkedRecords(TimedRecords):
    """The records of a side that are emitted also without a partner."""

    def take(self, buckets: Iterable[int], group_key: bytes) -> list[Entry]:
        """Take away the records of a key in buckets that expire; returns those not marked."""
        alone: list[Entry] = []
        for bucket in buckets:
            if bucket not in self._buckets and bucket >= self._complete_from:
                continue
            memory, marks = self._memory_of(bucket), self._marks
            assert marks is not None
            in_memory = memory.records.pop(group_key, None)
            if in_memory is not None:
                self._count -= max(1, len(in_memory))
            memory.large.pop(group_key, None)
            records: Iterable[TimedRecord] = in_memory or ()
            marked = memory.marked
            if not memory.complete:  # some rows may have expired that memory still has
                records = self._rows.of_key(bucket, group_key)
                marked = {number for _, number, _ in marks.of_key(bucket, group_key)}
            entries = entries_of(bucket, group_key, records)
            marks.delete(with_numbers(self._delete(memory, entries), marked))
            if not memory.unflushed:
                self._unflushed.pop(bucket, None)
            alone += without_numbers(entries, marked)
        return alone


class _Pairs:
    """Gathers pairs into buffers. Their records are in state: those that could be changed are
    copied when a buffer is cut.
    """

    __slots__ = ("_limit", "_turn", "records", "times")

    def __init__(self, turn: Turn, limit: int) -> None:
        self._turn = turn
        self._limit = limit
        self.records: list[tuple[Any, Any]] = []
        self.times: list[int] = []

    @property
    def due(self) -> bool:
        """Whether to emit what was gathered, or to rest: it fills a buffer, or the turn ended."""
        return len(self.records) >= self._limit or self._turn.ended()

    def cut(self) -> Batch:
        """Everything gathered so far, as a buffer."""
        if not self.records:
            return REST
        batch = Batch(copies_of(self.records), self.times)
        self.records, self.times = [], []
        return batch


class Join(Operator):
    """Emits (left, right), with None for a partner that there is not."""

    divisible = False
    record_option = "join(..., record_type=...)"

    def __init__(self, span: JoinSpan, how: JoinKind, late: str | None = None) -> None:
        self._span = span
        self._how = how
        self._emits_alone = EMITS_ALONE[how]
        self._late = late

    def open(self, context: OperatorContext) -> None:
        self._backend = context.backend
        self._turn = context.turn
        self._last_ended = self._expired_to = _NONE_ENDED
        schema, option = f"{self._how}, {self._span.text}", self.record_option
        self._sides = [
            _MarkedRecords(context.backend, name, schema, option, marks=True)
            if side in self._emits_alone
            else TimedRecords(context.backend, name, schema, option, batched=True)
            for side, name in ((LEFT, "left"), (RIGHT, "right"))
        ]

    def process(self, batch: Batch) -> Iterable[Batch]:
        keyed = cast(KeyedBatch, batch)
        times = event_times(keyed)
        event_time, is_late = self._backend.event_time, self._span.is_late
        on_time, late = self._on_time(keyed, times, event_time, is_late, self._late)
        joined = self._joined(on_time)
        # The records count as handled when this returns, unless they make more than one buffer.
        first = next(joined, None)
        produced = () if first is None else chain((first,), joined)
        return produced if late is None else chain((late,), produced)

    def watermark(self, time: int) -> Iterable[Batch]:
        self._backend.event_time.advance(time)
        last_ended = self._span.last_ended(time)
        if last_ended <= self._last_ended:
            return ()
        self._last_ended = last_ended
        return self._expired(last_ended)

    def _joined(self, batch: KeyedBatch) -> Iterator[Batch]:
        pairs = _Pairs(self._turn, self._pairs_of_buffer)
        last_ended = self._span.last_ended(self._backend.event_time.watermark)
        if self._emits_alone and last_ended > self._expired_to:
            group_keys = dict.fromkeys(batch.group_keys)
            yield from self._expire_keys(pairs, last_ended, group_keys)
        size = max(1, _AT_ONCE // self._span.buckets_of_record)
        for start in range(0, len(batch.records), size):
            yield from self._pair_up(pairs, batch.part(start, start + size))
        if pairs.records:
            yield pairs.cut()

    def _expire_keys(
        self, pairs: _Pairs, last_ended: int, group_keys: Iterable[bytes]
    ) -> Iterator[Batch]:
        """Emit alone what of these keys is in ended buckets, while those of others are emptied."""
        buckets = self._span.between(self._expired_to, last_ended)
        if buckets[_BUCKETS_AT_ONCE:]:  # they may be more than `len` can say
            yield from self._expired(last_ended)
            return
        for group_key in group_keys:
            for side in self._emits_alone:
                records = cast(_MarkedRecords, self._sides[side])
                for bucket, _, (time, _, record) in records.take(buckets, group_key):
                    self._emit_alone(pairs, side, bucket, time, record)
            if pairs.due:
                yield pairs.cut()

    def _pair_up(self, pairs: _Pairs, batch: KeyedBatch) -> Iterator[Batch]:
        """Keep records that may still find partners, and pair all with those of the other side;
        the buffers that are due.
        """
        side, new_records = batch.side, self._new_records(batch)
        partners_of, other_side = self._span.partners, self._sides[1 - side]
        emits_alone, other_emits_alone = side in self._emits_alone, 1 - side in self._emits_alone
        event_time, step = self._backend.event_time, max(1, STEP // self._span.windows)
        look_every = max(1, _LOOK_EVERY // self._span.windows)
        last_ended = self._span.last_ended(event_time.watermark)
        lasting = [record for record in new_records if record[_BUCKET] > last_ended]
        numbers = iter(self._sides[side].add(lasting))
        for index, new_record in enumerate(new_records):
            group_key, bucket, time, _ = new_record
            watermark = event_time.watermark
            if event_time.ahead:
                watermark = event_time.of(group_key[:2])
            number = next(numbers) if bucket > last_ended else None
            paired = False
            buckets, earliest, latest = partners_of(side, time, bucket)
            times = earliest, latest
            for other_bucket, records in other_side.find(buckets, group_key, times):
                for partners in _between(records, earliest, latest, step):
                    if partners:
                        paired = True
                        self._pair(pairs, side, new_record, partners, watermark)
                        if other_emits_alone:
                            other_side.mark(other_bucket, group_key, partners)
                    if (type(records) is not list or len(partners) == step) and pairs.due:
                        yield pairs.cut()
            if emits_alone:
                self._settle(pairs, side, new_record, number, paired=paired)
            if index % look_every == 0 and pairs.due:
                yield pairs.cut()

    @property
    def _pairs_of_buffer(self) -> int:
        pair_bytes = sum(side.size.bytes for side in self._sides)
        return round(min(OUTPUT_RECORDS, max(1.0, OUTPUT_BYTES / max(1.0, pair_bytes))))

    def _new_records(self, batch: KeyedBatch) -> list[NewRecord]:
        """The records with their times, each once for each of its buckets."""
        side, buckets_of, event_time = batch.side, self._span.buckets, self._backend.event_time
        watermark_of, ahead, watermark = event_time.of, event_time.ahead, event_time.watermark
        group_keys, times = batch.group_keys, cast("list[int]", batch.times)
        new_records: list[NewRecord] = []
        add = new_records.append
        for group_key, time, record in zip(group_keys, times, batch.records, strict=True):
            if ahead:
                watermark = watermark_of(group_key[:2])
            for bucket in buckets_of(side, time, watermark):
                add((group_key, bucket, time, record))
        return new_records

    def _pair(
        self,
        pairs: _Pairs,
        side: int,
        new_record: NewRecord,
        partners: Sequence[TimedRecord],
        watermark: int,
    ) -> None:
        _, bucket, time, record = new_record
        partners, times = self._span.pairs(time, bucket, partners, watermark)
        if side == LEFT:
            pairs.records += [(record, partner[RECORD]) for partner in partners]
        else:
            pairs.records += [(partner[RECORD], record) for partner in partners]
        pairs.times += times

    def _settle(
        self, pairs: _Pairs, side: int, new_record: NewRecord, number: int | None, *, paired: bool
    ) -> None:
        """Mark a record that found a partner; emit one that cannot find one any more."""
        group_key, bucket, time, record = new_record
        if paired and number is not None:
            self._sides[side].mark(bucket, group_key, ((time, number, record),))
        elif not paired and number is None:
            self._emit_alone(pairs, side, bucket, time, record)

    def _emit_alone(self, pairs: _Pairs, side: int, bucket: int, time: int, record: Any) -> None:
        pairs.records.append((record, None) if side == LEFT else (None, record))
        # Not its own time: event time has passed that, and the record would be late.
        pairs.times.append(max(time, self._span.end(bucket)))

    def _expired(self, last_ended: int) -> Iterator[Batch]:
        """Empty the buckets up to this one, and emit alone what was to be emitted and was not."""
        pairs = _Pairs(self._turn, self._pairs_of_buffer)
        for side, records in enumerate(self._sides):
            emits_alone = side in self._emits_alone
            for entries in records.expire(last_ended):
                if emits_alone:
                    for bucket, _, (time, _, record) in entries:
                        self._emit_alone(pairs, side, bucket, time, record)
                if pairs.records:
                    yield pairs.cut()
                yield PAUSE
        self._expired_to = max(self._expired_to, last_ended)


def _between(
    records: KeyRecords, earliest: float, latest: float, step: int
) -> Iterator[list[TimedRecord]]:
    """The records from the earliest to the latest time, `step` at a time."""
    if isinstance(records, list) or type(records) is Timeline:
        return between(records, earliest, latest, step)
    return _stored_between(records, earliest, latest, step)


def _stored_between(
    records: Iterable[TimedRecord], earliest: float, latest: float, step: int
) -> Iterator[list[TimedRecord]]:
    remaining = iter(records)
    while chunk := first_of(remaining, step):
        yield [record for record in chunk if earliest <= record[EVENT_TIME] <= latest]
