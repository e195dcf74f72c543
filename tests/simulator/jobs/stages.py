"""The operators simulated jobs are made of, each twice: for tidelog, and as plain Python.

Invariants: `evaluate` needs nothing of tidelog but the record, so it can be right when tidelog is
wrong. What a processor emits in all does not depend on how the records of different sources
interleave, on buffers, or on when an incarnation ends.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import add, attrgetter, itemgetter
from typing import Any, Final

from tests.simulator.jobs.source import Record
from tidelog import Count, Session, Sliding, StatefulProcessor, StatefulProcessorHandle, Stream
from tidelog.runtime.graph import KeyedStream

BUCKET_MS: Final = 700

key_of = attrgetter("key")
value_of = attrgetter("value")
time_of = attrgetter("time")
key_and_value = attrgetter("key", "value")
first_field: Callable[[Any], Any] = itemgetter(0)


@dataclass(frozen=True, slots=True)
class Stage:
    """One step from records to records, or to results."""

    apply: Callable[[Stream], Stream]
    """Adds it to a job."""
    evaluate: Callable[[list[Any]], list[Any]]
    """What the stage makes of all records, in any order."""
    copies: bool = False
    """Every subtask makes all of it."""


def through(stream: Stream, stages: Iterable[Stage]) -> Stream:
    for stage in stages:
        stream = stage.apply(stream)
    return stream


def type_name(record: Any) -> str:
    return type(record).__name__


def add_first(left: tuple[int], right: tuple[int]) -> tuple[int]:
    return (left[0] + right[0],)


def same(records: Any) -> Any:
    return records


def _raised(record: Record) -> Record:
    return record._replace(value=2 * record.value + 1)


def _kept(record: Record) -> bool:
    return record.number % 4 != 0


def _doubled(record: Record) -> list[Record]:
    return [record, record._replace(number=-1 - record.number)]


RAISE = Stage(lambda stream: stream.map(_raised), lambda records: [*map(_raised, records)])
THIN = Stage(lambda stream: stream.filter(_kept), lambda records: [*filter(_kept, records)])
DOUBLE = Stage(
    lambda stream: stream.flat_map(_doubled),
    lambda records: [copy for record in records for copy in _doubled(record)],
)
SPREAD = Stage(lambda stream: stream.rebalance().map(same), same)
EVERYWHERE = Stage(lambda stream: stream.broadcast().map(same), same, copies=True)


def event_time(
    max_delay_ms: int, *, of: Callable[[Any], int] = time_of, **options: int | None
) -> Stage:
    def apply(stream: Stream) -> Stream:
        return stream.event_time(of, max_delay_ms=max_delay_ms, **options)  # type: ignore[arg-type]

    return Stage(apply, same)


Group = tuple[Any, ...]
Groups = Callable[[list[Any]], Mapping[Group, list[Any]]]


def _by(groups_of: Callable[[Any], Iterable[Group]]) -> Groups:
    """A record may be in several groups."""

    def grouped(records: list[Any]) -> dict[Group, list[Any]]:
        found: dict[Group, list[Any]] = defaultdict(list)
        for record in records:
            for group in groups_of(record):
                found[group].append(record)
        return found

    return grouped


BY_KEY: Final = _by(lambda record: [(record.key,)])


def grouping(
    apply: Callable[[KeyedStream], Stream],
    results: Callable[[Group, list[Any]], Iterable[Any]],
    groups: Groups = BY_KEY,
    key: Callable[[Any], Any] = key_of,
) -> Stage:
    """A keyed stage: what it makes of the records of each group."""

    def evaluate(records: list[Any]) -> list[Any]:
        found = groups(records).items()
        return [result for group, rows in found for result in results(group, rows)]

    return Stage(lambda stream: apply(stream.key_by(key)), evaluate)


def numbering(padding: int = 0) -> Stage:
    """Every record numbered within its key and kind."""
    return grouping(
        lambda keyed: keyed.transform_with_state(lambda: Numbering(padding=padding)),
        lambda group, rows: [(*group, number) for number in range(1, len(rows) + 1)],
        _by(lambda record: [(record.key, type_name(record))]),
    )


def _class_of(result: tuple[Any, ...]) -> int:
    return sum(part for part in result if isinstance(part, int)) % 5


TOTALS = grouping(
    lambda keyed: keyed.aggregate(value_of, add), lambda group, rows: [(*group, total(rows))]
)
"""The sum of values per key, at the end."""
MEANS = grouping(
    lambda keyed: keyed.mean(value_of), lambda group, rows: [(*group, total(rows) / len(rows))]
)
"""The mean of values per key, at the end."""
TRIPLES = grouping(
    lambda keyed: keyed.window(Count(3)).count(),
    lambda group, rows: [(*group, 3)] * (len(rows) // 3),
)
"""Windows of three records."""
DISTINCT = grouping(
    lambda keyed: keyed.deduplicate(value_of, ttl="1d").map(key_and_value),
    lambda group, rows: [group],
    _by(lambda record: [key_and_value(record)]),
)
"""Each value of a key once."""
BUCKETS = grouping(
    lambda keyed: keyed.transform_with_state(Buckets, time_mode="event"),
    lambda group, rows: [(*group, total(rows), len(rows), numbers(rows))],
    _by(lambda record: [(record.key, bucket_of(record))]),
)
"""A processor with event-time timers."""
RECOUNT = grouping(
    lambda keyed: keyed.aggregate(one, add, name="recount"),
    lambda group, rows: [(*group, len(rows))],
    _by(lambda result: [(_class_of(result),)]),
    key=_class_of,
)
"""After another keyed operator: how many results fall into each of a few classes."""


@dataclass(frozen=True, slots=True)
class Windows:
    """A kind of event-time windows, for tidelog and as plain Python."""

    span: Sliding | Session
    groups: Groups
    """What is in each of them, by what identifies it in results."""

    def sums(self, each: int = 0) -> Stage:
        """With something for each record, the sums show their number as well."""
        return grouping(
            lambda keyed: keyed.window(self.span).aggregate(lambda r: r.value + each, add),
            lambda window, rows: [(*window, total(rows) + each * len(rows))],
            self.groups,
        )

    def contents(self) -> Stage:
        return grouping(
            lambda keyed: keyed.window(self.span).records(_contents),
            lambda window, rows: [(*window, numbers(rows))],
            self.groups,
        )


def sliding(size_ms: int, slide_ms: int) -> Windows:
    """Windows that are known by key and start."""

    def starts(record: Any) -> Iterator[Group]:
        time = record.time
        for start in range(time - time % slide_ms, time - size_ms, -slide_ms):
            yield record.key, start

    return Windows(Sliding(size_ms, slide_ms), _by(starts))


def sessions(gap_ms: int) -> Windows:
    """Sessions that are known by key, start and end."""

    def groups(records: list[Any]) -> dict[Group, list[Any]]:
        found: list[list[Any]] = []
        for record in sorted(records, key=attrgetter("key", "time")):
            last = found[-1][-1] if found else None
            if last and last.key == record.key and record.time - last.time <= gap_ms:
                found[-1].append(record)
            else:
                found.append([record])
        return {(s[0].key, s[0].time, s[-1].time + gap_ms): s for s in found}

    return Windows(Session(gap_ms), groups)


def _contents(*window: Any) -> Any:
    return *window[:-1], numbers(window[-1])


def one(_: Any) -> int:
    return 1


def total(records: Iterable[Any]) -> int:
    return sum(map(value_of, records))


def numbers(records: Iterable[Any]) -> tuple[int, ...]:
    return tuple(sorted(record.number for record in records))


def bucket_of(record: Any) -> int:
    """The end of the bucket of a record's time."""
    end: int = (record.time // BUCKET_MS + 1) * BUCKET_MS
    return end


class Numbering(StatefulProcessor):
    """Numbers the records of a key by their kinds: emits (key, kind, 1), (key, kind, 2), ...

    They are counted in three states; where these disagree, a number is negative.
    """

    def __init__(
        self, kind: Callable[[Any], str] = type_name, ttl_ms: int | None = None, padding: int = 0
    ) -> None:
        self._kind = kind
        self._ttl_ms = ttl_ms
        self._padding = "x" * padding

    def init(self, handle: StatefulProcessorHandle) -> None:
        ttl = self._ttl_ms
        self._kinds = handle.getMapState("kinds", "kind string", "count long", ttl)
        self._count = handle.getValueState("count", "count long, padding string", ttl)
        self._total = handle.getReducingState("total", "total long", add_first, ttl)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        stored = self._count.get()
        count = stored[0] if stored is not None else 0
        for row in rows:
            count += 1
            kind = self._kind(row)
            (of_kind,) = self._kinds.getValue((kind,)) or (0,)
            self._kinds.updateValue((kind,), (of_kind + 1,))
            self._total.add((1,))
            counted = sum(number for _, (number,) in self._kinds.iterator())
            agreed = (counted,) == (count,) == self._total.get()
            yield key[0], kind, of_kind + 1 if agreed else -1
        self._count.update((count, self._padding))


class Buckets(StatefulProcessor):
    """Collects records by event time; when a bucket ends, emits what was in it."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._sums = handle.getMapState("sums", "bucket long", "total long, count long")
        self._seen = handle.getListState("seen", "bucket long, number long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        for row in rows:
            bucket = bucket_of(row)
            total, count = self._sums.getValue((bucket,)) or (0, 0)
            self._sums.updateValue((bucket,), (total + row.value, count + 1))
            self._seen.appendValue((bucket, row.number))
            self._handle.registerTimer(bucket)
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Any:
        bucket = expiredTimerInfo.getExpiryTimeInMs()
        total, count = self._sums.getValue((bucket,)) or (0, 0)
        self._sums.removeKey((bucket,))
        seen = list(self._seen.get())
        self._seen.put([entry for entry in seen if entry[0] != bucket])
        numbers = tuple(sorted(number for at, number in seen if at == bucket))
        yield key[0], bucket, total, count, numbers
