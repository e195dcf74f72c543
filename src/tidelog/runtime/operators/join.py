"""Joins of two keyed streams in event time: pairs are emitted as soon as both records are there.

Invariants: two records of a key that go together are one pair, made by the one that comes last; a
record that an outer join must not lose and that was in no pair is emitted once, alone, when its
bucket of time has ended, and before later pairs of its key; neither side keeps a record of an ended
bucket. A record is marked when it is first in a pair, on sides that an outer join keeps, so no
record is ever written again.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from operator import add
from typing import Any, Final, Literal, cast

from tidelog.runtime.channels.copies import copies_of
from tidelog.runtime.channels.messages import Batch, KeyedBatch
from tidelog.runtime.operators.operator import Operator, OperatorContext, event_times
from tidelog.runtime.operators.spans import LEFT, RIGHT, JoinSpan
from tidelog.runtime.operators.turn import OUTPUT_BYTES, OUTPUT_RECORDS, PAUSE, REST, Turn
from tidelog.state.timed_records import STEP, NewRecord, TimedRecords
from tidelog.state.timed_rows import Entry, first_of
from tidelog.state.timeline import Held, Records, Timeline, between

JoinKind = Literal["inner", "left", "outer"]
EMITS_ALONE: Final[dict[str, tuple[int, ...]]] = {
    "inner": (),
    "left": (LEFT,),
    "outer": (LEFT, RIGHT),
}
"""The sides whose records are emitted also without a partner."""

_AT_ONCE: Final = 256
"""Records that are kept at once, each counted for all of its windows: they take memory that no
flush can free before."""
_LOOK_EVERY: Final = 64
"""Records that look for partners before the turn is looked at."""
_BUCKETS_AT_ONCE: Final = 64
"""So many ended buckets are looked into for each key; more of them are all emptied first."""
_NONE_ENDED: Final = -(1 << 64)


class _MarkedRecords(TimedRecords):
    """The records of a side that are wanted also without a partner."""

    def take(self, buckets: Iterable[int], place: bytes) -> list[Entry]:
        """Take away the records of a place in buckets that expire; returns those not marked."""
        taken: list[Entry] = []
        for bucket in buckets:
            if bucket not in self._buckets and bucket >= self._whole_from:
                continue
            kept, marks = self._bucket(bucket), self._marks
            assert marks is not None
            in_memory = kept.records.pop(place, None)
            self._held -= 0 if in_memory is None else max(1, len(in_memory))
            kept.large.pop(place, None)
            # Of another bucket some rows may have expired, which memory still has.
            records = in_memory or () if kept.whole else self._rows.of_place(bucket, place)
            entries = [(bucket, place, record) for record in records]
            marked = kept.marked
            if not kept.whole:
                marked = {number for _, number, _ in marks.of_place(bucket, place)}
            marks.delete([e for e in self._delete(kept, entries) if e[2][1] in marked])
            if not kept.fresh:
                self._fresh.pop(bucket, None)
            taken += [e for e in entries if e[2][1] not in marked]
        return taken


class _Pairs:
    """Gathers pairs into buffers; their records are in state, so that they take memory only as
    copies, which those that could be changed become.
    """

    __slots__ = ("_most", "_turn", "records", "times")

    def __init__(self, turn: Turn, most: int) -> None:
        self._turn = turn
        self._most = most
        self.records: list[tuple[Any, Any]] = []
        self.times: list[int] = []

    @property
    def due(self) -> bool:
        """Whether to emit what was gathered, or to rest: it fills a buffer, or the turn ended."""
        return len(self.records) >= self._most or self._turn.ended()

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
        self._ended = self._expired_to = _NONE_ENDED
        schema, option = f"{self._how}, {self._span.text}", self.record_option
        if older := self._span.older:
            older_schema = f"{self._how}, {older.text}"
            if older_schema in context.backend.registry.stored_schema("left"):
                self._span, schema = older, older_schema
        emits = self._emits_alone
        self._sides = [
            _MarkedRecords(context.backend, name, schema, option, marks=True)
            if side in emits
            else TimedRecords(context.backend, name, schema, option, batched=True)
            for side, name in ((LEFT, "left"), (RIGHT, "right"))
        ]

    def process(self, batch: Batch) -> Iterable[Batch]:
        keyed = cast(KeyedBatch, batch)
        times = event_times(keyed)
        event_time, is_late = self._backend.event_time, self._span.is_late
        kept, late = self._on_time(keyed, times, event_time, is_late, self._late)
        joined = self._joined(kept)
        # The records count as handled when this returns, unless they make more than one buffer.
        first = next(joined, None)
        produced = () if first is None else chain((first,), joined)
        return produced if late is None else chain((late,), produced)

    def watermark(self, time: int) -> Iterable[Batch]:
        self._backend.event_time.advance(time)
        ended = self._span.ended(time)
        if ended <= self._ended:
            return ()
        self._ended = ended
        return self._expired(ended)

    def _joined(self, batch: KeyedBatch) -> Iterator[Batch]:
        pairs = _Pairs(self._turn, self._most_pairs)
        ended = self._span.ended(self._backend.event_time.watermark)
        if self._emits_alone and ended > self._expired_to:
            yield from self._expire_places(pairs, ended, dict.fromkeys(_places(batch)))
        records = max(1, _AT_ONCE // self._span.buckets_of_record)
        for at in range(0, len(batch.records), records):
            yield from self._pair_up(pairs, batch.part(at, at + records))
        if pairs.records:
            yield pairs.cut()

    def _expire_places(self, pairs: _Pairs, ended: int, places: Iterable[bytes]) -> Iterator[Batch]:
        """Emit alone what of these keys is in ended buckets, while those of others are emptied."""
        buckets = self._span.between(self._expired_to, ended)
        if buckets[_BUCKETS_AT_ONCE:]:  # they may be more than `len` can say
            yield from self._expired(ended)
            return
        for place in places:
            for side in self._emits_alone:
                records = cast(_MarkedRecords, self._sides[side])
                for bucket, _, (time, _, record) in records.take(buckets, place):
                    self._emit_alone(pairs, side, bucket, time, record)
            if pairs.due:
                yield pairs.cut()

    def _pair_up(self, pairs: _Pairs, batch: KeyedBatch) -> Iterator[Batch]:
        """Keep records that may still find partners, and pair all with those of the other side;
        the buffers that are due.
        """
        side, entries = batch.side, self._entries(batch)
        partners, others = self._span.partners, self._sides[1 - side]
        alone, others_alone = (each in self._emits_alone for each in (side, 1 - side))
        event_time, step = self._backend.event_time, max(1, STEP // self._span.windows)
        look_every = max(1, _LOOK_EVERY // self._span.windows)
        ended = self._span.ended(event_time.watermark)
        numbers = iter(self._sides[side].add([entry for entry in entries if entry[1] > ended]))
        for at, entry in enumerate(entries):
            place, own, time, _ = entry
            passed = event_time.of(place[:2]) if event_time.ahead else event_time.watermark
            number = next(numbers) if own > ended else None
            paired = False
            buckets, least, most = partners(side, time, own)
            for bucket, held in others.find(buckets, place, (least, most)):
                for found in _between(held, least, most, step):
                    if found:
                        paired = True
                        self._pair(pairs, side, entry, found, passed)
                        if others_alone:
                            others.mark(bucket, place, found)
                    if (type(held) is not list or len(found) == step) and pairs.due:
                        yield pairs.cut()
            if alone:
                self._settle(pairs, side, entry, number, paired=paired)
            if at % look_every == 0 and pairs.due:
                yield pairs.cut()

    @property
    def _most_pairs(self) -> int:
        """How many pairs fill a buffer."""
        size = sum(side.size.bytes for side in self._sides)
        return round(min(OUTPUT_RECORDS, max(1.0, OUTPUT_BYTES / max(1.0, size))))

    def _entries(self, batch: KeyedBatch) -> list[NewRecord]:
        side, own, event_time = batch.side, self._span.own, self._backend.event_time
        of, ahead, passed = event_time.of, event_time.ahead, event_time.watermark
        places, times = _places(batch), cast("list[int]", batch.times)
        return [
            (place, bucket, time, record)
            for place, time, record in zip(places, times, batch.records, strict=True)
            for bucket in own(side, time, of(place[:2]) if ahead else passed)
        ]

    def _pair(
        self, pairs: _Pairs, side: int, entry: NewRecord, found: Sequence[Held], passed: int
    ) -> None:
        _, own, time, record = entry
        partners, times = self._span.pairs(time, own, found, passed)
        if side == LEFT:
            pairs.records += [(record, held[2]) for held in partners]
        else:
            pairs.records += [(held[2], record) for held in partners]
        pairs.times += times

    def _settle(
        self, pairs: _Pairs, side: int, entry: NewRecord, number: int | None, *, paired: bool
    ) -> None:
        """Mark a record that found a partner; emit one that cannot find one any more."""
        place, bucket, time, record = entry
        if paired and number is not None:
            self._sides[side].mark(bucket, place, ((time, number, record),))
        elif not paired and number is None:
            self._emit_alone(pairs, side, bucket, time, record)

    def _emit_alone(self, pairs: _Pairs, side: int, bucket: int, time: int, record: Any) -> None:
        pairs.records.append((record, None) if side == LEFT else (None, record))
        # Not its own time: event time has passed that, and the record would be late.
        pairs.times.append(max(time, self._span.end(bucket)))

    def _expired(self, ended: int) -> Iterator[Batch]:
        pairs = _Pairs(self._turn, self._most_pairs)
        for side, records in enumerate(self._sides):
            wanted = side in self._emits_alone
            for some in records.expire(ended):
                for bucket, _, (time, _, record) in some if wanted else ():
                    self._emit_alone(pairs, side, bucket, time, record)
                if pairs.records:
                    yield pairs.cut()
                yield PAUSE
        self._expired_to = max(self._expired_to, ended)


def _places(batch: KeyedBatch) -> list[bytes]:
    return list(map(add, batch.groups, batch.keys))


def _between(
    held: Records | Iterator[Held], least: float, greatest: float, step: int
) -> Iterator[list[Held]]:
    """The records with times from the least to the greatest, so many at a time."""
    if isinstance(held, list) or type(held) is Timeline:
        return between(held, least, greatest, step)
    return _stored_between(held, least, greatest, step)


def _stored_between(
    held: Iterable[Held], least: float, greatest: float, step: int
) -> Iterator[list[Held]]:
    each = iter(held)
    while some := first_of(each, step):
        yield [timed for timed in some if least <= timed[0] <= greatest]
