"""Records with the row of a table, another keyed stream: as it was at their time, or as it is now.

Invariants: by event time a record waits until the watermark is there, so it gets the newest row of
its time or before, whatever came first; a row goes when the watermark has passed a newer one of its
key, so each key keeps one for good.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice, repeat, takewhile
from operator import add
from typing import Any, Final, cast

from tidelog.runtime.channels.copies import copies_of
from tidelog.runtime.channels.messages import Batch, KeyedBatch
from tidelog.runtime.operators.operator import Operator, OperatorContext, event_times
from tidelog.runtime.operators.outputs import Distinct, Outputs
from tidelog.runtime.operators.portion import Portion
from tidelog.runtime.operators.spans import RIGHT, has_passed
from tidelog.runtime.operators.turn import PAUSE, REST
from tidelog.state.event_time import UNKNOWN
from tidelog.state.handles.timers import KEY, TIME, Timers, decode_time
from tidelog.state.objects.values import UntypedValues
from tidelog.state.timed_records import STEP, TimedRecords
from tidelog.state.timeline import Held, Records, newest

TIMES: Final = ("event", "processing")
RECORD_OPTION: Final = "enrich(..., record_type=...)"
_ALL_TIMES: Final = 0
"""The bucket of all versions of a row."""

JoinRow = Callable[[Any, Any], Any]


class EnrichAtTime(Operator):
    """Joins a record with the newest row at its event time, or None where there is none."""

    divisible = False

    def __init__(self, join: JoinRow, late: str | None = None) -> None:
        self._join = join
        self._late = late
        self._emitted_to = UNKNOWN
        """No record with this time or an earlier one waits."""

    def open(self, context: OperatorContext) -> None:
        backend = self._backend = context.backend
        self._turn = context.turn
        self._waiting = TimedRecords(backend, "waiting", "by time", RECORD_OPTION)
        self._versions = TimedRecords(backend, "table", "by key", RECORD_OPTION)
        self._portion = Portion(STEP)
        self._timers = Timers(backend, "table", listed=False)

    def process(self, batch: Batch) -> Iterable[Batch]:
        keyed = cast(KeyedBatch, batch)
        times = event_times(keyed)
        if keyed.side == RIGHT:
            # A row is never late: it counts for all records that are not.
            if self._emitted_to < self._backend.event_time.watermark >= min(times):
                return self._keep_after_emitting(keyed, times)
            self._keep_versions(keyed, times)
            return ()
        kept, late = self._on_time(keyed, times, self._backend.event_time, has_passed, self._late)
        if kept.records:
            times = cast("list[int]", kept.times)
            self._waiting.add(list(zip(_places(kept), times, times, kept.records, strict=True)))
        return () if late is None else (late,)

    def watermark(self, time: int) -> Iterable[Batch]:
        self._backend.event_time.advance(time)
        yield from self._emit(time)
        # Not up to what key groups are ahead: in a start with another parallelism, after a barrier
        # in the middle of a watermark, records up to there may still wait for older rows.
        for rows in self._timers.expired_rows(time):
            # They are in the order of time: of each place the newest is the last.
            newest = {row[:2] + row[KEY]: row[TIME] for row in rows}
            for place, until in newest.items():
                yield from self._drop_older(place, decode_time(until))
            self._timers.delete_many(rows)
            if rows:
                yield PAUSE

    def _keep_after_emitting(self, batch: KeyedBatch, times: list[int]) -> Iterator[Batch]:
        """Keep rows that records of which event time has come are not to see."""
        yield from self._emit(self._backend.event_time.watermark)
        self._keep_versions(batch, times)

    def _keep_versions(self, batch: KeyedBatch, times: list[int]) -> None:
        """Keep rows, and a timer for each that is not the first of its key: older ones go then."""
        places = _places(batch)
        firsts: dict[bytes, int] = {}
        due: list[tuple[int, bytes]] = []
        for place, time in zip(places, times, strict=True):
            if place not in firsts:
                held = next(iter(self._versions_of(place)), None)
                firsts[place] = time if held is None else held[0]
                if held is None:
                    continue
            # Of the two the later one; the other is the first from now on.
            due.append((max(time, firsts[place]), place))
            firsts[place] = min(time, firsts[place])
        self._timers.register_many(due)
        buckets = repeat(_ALL_TIMES, len(times))
        self._versions.add(list(zip(places, buckets, times, batch.records, strict=True)))

    def _emit(self, watermark: int) -> Iterator[Batch]:
        outputs = Outputs(self._turn, timed=True)
        for some in self._waiting.expire(watermark):
            rows = copies_of(self._rows_at([(place, time) for _, place, (time, _, _) in some]))
            at = 0
            while at < len(some):
                started, end = self._turn.now(), at + self._portion.size
                pairs = zip(some[at:end], rows[at:end], strict=True)
                outputs.records += [self._join(record, row) for (*_, (_, _, record)), row in pairs]
                assert outputs.times is not None
                outputs.times += [time for *_, (time, _, _) in some[at:end]]
                self._portion.took(len(some[at:end]), self._turn.now() - started)
                at = end
                if outputs.due:
                    yield outputs.cut()
            yield from outputs.rest()
            yield PAUSE
        self._emitted_to = max(self._emitted_to, watermark)

    def _rows_at(self, wanted: list[tuple[bytes, int]]) -> list[Any]:
        """The row of each place at a time; many versions of one are read once for all times."""
        of_place: dict[bytes, list[int]] = {}
        for at, (place, _) in enumerate(wanted):
            of_place.setdefault(place, []).append(at)
        rows: list[Any] = [None] * len(wanted)
        for place, positions in of_place.items():
            versions = self._versions_of(place)
            if not isinstance(versions, Iterator):
                for at in positions:
                    version = newest(versions, wanted[at][1])
                    rows[at] = None if version is None else version[2]
                continue
            row, following = None, next(versions, None)
            for at in sorted(positions, key=lambda at: wanted[at][1]):
                while following is not None and following[0] <= wanted[at][1]:
                    row, following = following[2], next(versions, None)
                rows[at] = row
        return rows

    def _versions_of(self, place: bytes) -> Records | Iterator[Held]:
        found = self._versions.find((_ALL_TIMES,), place)
        return found[0][1] if found else []

    def _drop_older(self, place: bytes, time: int) -> Iterator[Batch]:
        """Let rows of a key go but for the newest at a time."""
        while True:
            versions = self._versions_of(place)
            passed = list(islice(takewhile(lambda held: held[0] <= time, versions), STEP + 1))
            if len(passed) > 1:
                self._versions.remove(_ALL_TIMES, place, passed[:-1])
            if len(passed) <= STEP:
                return
            yield REST


class EnrichNow(Operator):
    """Joins a record with the newest row that is there when it comes, or None."""

    def __init__(self, join: JoinRow) -> None:
        self._join = join
        self._distinct = Distinct()

    def open(self, context: OperatorContext) -> None:
        table = ("table", "aggregate", ("msgpack",))
        self._values = UntypedValues(context.backend, table, RECORD_OPTION)
        self._rows = self._values.rows()
        self._turn = context.turn

    def process(self, batch: Batch) -> Iterable[Batch]:
        keyed = cast(KeyedBatch, batch)
        state = self._values.prefix
        rows = [g + state + key for g, key in zip(keyed.groups, keyed.keys, strict=True)]
        if keyed.side == RIGHT:
            self._values.check_first(keyed.records)
            self._rows.put_many(dict(zip(rows, keyed.records, strict=True)))
            return ()
        newest = copies_of(self._rows.get_many(rows))
        pairs = zip(keyed.records, newest, strict=True)
        made = [self._join(record, row) for record, row in pairs]
        self._distinct.check(made, [*keyed.records, *newest])
        return (Batch(made, keyed.times),)


def _places(batch: KeyedBatch) -> list[bytes]:
    return list(map(add, batch.groups, batch.keys))
