"""Records with the row of a table, another keyed stream: as it was at their time, or as it is now.

Invariants: by event time a record waits until the watermark is there, so it gets the newest row of
its time or before, whatever came first; a row goes when the watermark has passed a newer one of its
key, so each key keeps one for good.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice, repeat, takewhile
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
from tidelog.state.registry import Definition
from tidelog.state.timed_records import STEP, KeyRecords, TimedRecords
from tidelog.state.timed_rows import Entry
from tidelog.state.timeline import EVENT_TIME, newest

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
        event_time = self._backend.event_time
        on_time, late = self._on_time(keyed, times, event_time, has_passed, self._late)
        if on_time.records:
            times = buckets = cast("list[int]", on_time.times)
            new = zip(on_time.group_keys, buckets, times, on_time.records, strict=True)
            self._waiting.add(list(new))
        return () if late is None else (late,)

    def watermark(self, time: int) -> Iterable[Batch]:
        self._backend.event_time.advance(time)
        yield from self._emit(time)
        # Not up to what key groups are ahead: in a start with another parallelism, after a barrier
        # in the middle of a watermark, records up to there may still wait for older rows.
        for rows in self._timers.expired_rows(time):
            # They are in the order of time: of each key the newest is the last.
            newest_times = {row[:2] + row[KEY]: row[TIME] for row in rows}
            for group_key, encoded_time in newest_times.items():
                yield from self._drop_older(group_key, decode_time(encoded_time))
            self._timers.delete_many(rows)
            if rows:
                yield PAUSE

    def _keep_after_emitting(self, batch: KeyedBatch, times: list[int]) -> Iterator[Batch]:
        """Keep rows after records were emitted that waited, and may not see rows that come now."""
        yield from self._emit(self._backend.event_time.watermark)
        self._keep_versions(batch, times)

    def _keep_versions(self, batch: KeyedBatch, times: list[int]) -> None:
        """Keep rows, and a timer for each that is not the first of its key: older ones go then."""
        group_keys = batch.group_keys
        first_times: dict[bytes, int] = {}
        timers: list[tuple[int, bytes]] = []
        for group_key, time in zip(group_keys, times, strict=True):
            if group_key not in first_times:
                first = next(iter(self._versions_of(group_key)), None)
                if first is None:
                    first_times[group_key] = time
                    continue
                first_times[group_key], _, _ = first
            # Of the two the later one; the other is the first from now on.
            timers.append((max(time, first_times[group_key]), group_key))
            first_times[group_key] = min(time, first_times[group_key])
        self._timers.register_many(timers)
        buckets = repeat(_ALL_TIMES, len(times))
        self._versions.add(list(zip(group_keys, buckets, times, batch.records, strict=True)))

    def _emit(self, watermark: int) -> Iterator[Batch]:
        outputs = Outputs(self._turn, timed=True)
        for entries in self._waiting.expire(watermark):
            rows = copies_of(self._rows_at(entries))
            start = 0
            while start < len(entries):
                started, end = self._turn.now(), start + self._portion.size
                portion = entries[start:end]
                pairs = zip(portion, rows[start:end], strict=True)
                outputs.records += [
                    self._join(record, row) for (_, _, (_, _, record)), row in pairs
                ]
                assert outputs.times is not None
                outputs.times += [time for _, _, (time, _, _) in portion]
                self._portion.took(len(portion), self._turn.now() - started)
                start = end
                if outputs.due:
                    yield outputs.cut()
            yield from outputs.rest()
            yield PAUSE
        self._emitted_to = max(self._emitted_to, watermark)

    def _rows_at(self, entries: list[Entry]) -> list[Any]:
        """The row for each entry at its time; many versions of a key are read once for all."""
        indexes_of_key: dict[bytes, list[int]] = {}
        times: list[int] = []
        for index, (_, group_key, (time, _, _)) in enumerate(entries):
            indexes_of_key.setdefault(group_key, []).append(index)
            times.append(time)
        rows: list[Any] = [None] * len(times)
        for group_key, indexes in indexes_of_key.items():
            versions = self._versions_of(group_key)
            if not isinstance(versions, Iterator):
                for index in indexes:
                    if version := newest(versions, times[index]):
                        _, _, rows[index] = version
                continue
            row, following = None, next(versions, None)
            for index in sorted(indexes, key=times.__getitem__):
                while following is not None and following[EVENT_TIME] <= times[index]:
                    _, _, row = following
                    following = next(versions, None)
                rows[index] = row
        return rows

    def _versions_of(self, group_key: bytes) -> KeyRecords:
        """The rows of a key in the order of time."""
        return dict(self._versions.find((_ALL_TIMES,), group_key)).get(_ALL_TIMES, [])

    def _drop_older(self, group_key: bytes, time: int) -> Iterator[Batch]:
        """Let rows of a key go but for the newest at a time."""
        while True:
            versions = self._versions_of(group_key)
            passed = list(
                islice(takewhile(lambda row: row[EVENT_TIME] <= time, versions), STEP + 1)
            )
            if len(passed) > 1:
                self._versions.remove(_ALL_TIMES, group_key, passed[:-1])
            if len(passed) <= STEP:
                return
            yield REST


class EnrichNow(Operator):
    """Joins a record with the newest row that is there when it comes, or None."""

    def __init__(self, join: JoinRow) -> None:
        self._join = join
        self._distinct = Distinct()

    def open(self, context: OperatorContext) -> None:
        table = Definition("table", "aggregate", ("msgpack",))
        self._values = UntypedValues(context.backend, table, RECORD_OPTION)
        self._rows = self._values.rows()

    def process(self, batch: Batch) -> Iterable[Batch]:
        keyed = cast(KeyedBatch, batch)
        rows = keyed.row_keys(self._values.prefix)
        if keyed.side == RIGHT:
            self._values.check_first(keyed.records)
            self._rows.put_many(dict(zip(rows, keyed.records, strict=True)))
            return ()
        newest = copies_of(self._rows.get_many(rows))
        pairs = zip(keyed.records, newest, strict=True)
        joined = [self._join(record, row) for record, row in pairs]
        self._distinct.check(joined, [*keyed.records, *newest])
        return (Batch(joined, keyed.times),)
