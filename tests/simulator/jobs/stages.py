"""The operators simulated jobs are made of, each twice: for tidelog, and as plain Python.

Invariant: `evaluate` needs nothing of tidelog but the record, so it can be right when tidelog
is wrong.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from tests.simulator.jobs.processors import Buckets, Numbering, bucket_of
from tests.simulator.jobs.source import Record
from tidelog.runtime.graph import Stream


class Stage(Protocol):
    """One step from records to records, or to results."""

    def apply(self, stream: Stream) -> Stream:
        """Add it to a job."""
        ...

    def evaluate(self, records: list[Any], parallelism: int) -> list[Any]:
        """What the stage makes of all records, in any order."""
        ...


class Raise:
    """A map."""

    def apply(self, stream: Stream) -> Stream:
        return stream.map(_raised)

    def evaluate(self, records: list[Any], parallelism: int) -> list[Any]:
        return list(map(_raised, records))


class Thin:
    """A filter."""

    def apply(self, stream: Stream) -> Stream:
        return stream.filter(_kept)

    def evaluate(self, records: list[Any], parallelism: int) -> list[Any]:
        return list(filter(_kept, records))


class Double:
    """A flat map."""

    def apply(self, stream: Stream) -> Stream:
        return stream.flat_map(_doubled)

    def evaluate(self, records: list[Any], parallelism: int) -> list[Any]:
        return [out for record in records for out in _doubled(record)]


class Spread:
    """Buffers go to subtasks in turn."""

    def apply(self, stream: Stream) -> Stream:
        return stream.rebalance().map(_same)

    def evaluate(self, records: list[Any], parallelism: int) -> list[Any]:
        return records


class Everywhere:
    """Every subtask gets every record."""

    def apply(self, stream: Stream) -> Stream:
        return stream.broadcast().map(_same)

    def evaluate(self, records: list[Any], parallelism: int) -> list[Any]:
        return records * parallelism


@dataclass(frozen=True, slots=True)
class EventTime:
    """Event times and watermarks."""

    max_delay_ms: int
    idle_after_ms: int | None = None
    max_ahead_ms: int = 60_000

    def apply(self, stream: Stream) -> Stream:
        return stream.event_time(
            _time,
            max_delay_ms=self.max_delay_ms,
            idle_after_ms=self.idle_after_ms,
            max_ahead_ms=self.max_ahead_ms,
        )

    def evaluate(self, records: list[Any], parallelism: int) -> list[Any]:
        return records


class Totals:
    """The sum of values per key, at the end."""

    def apply(self, stream: Stream) -> Stream:
        return stream.key_by(_key).aggregate(_value, plus)

    def evaluate(self, records: list[Any], parallelism: int) -> list[Any]:
        totals: dict[str, int] = defaultdict(int)
        for record in records:
            totals[record.key] += record.value
        return list(totals.items())


@dataclass(frozen=True, slots=True)
class Numbers:
    """Every record numbered within its key."""

    padding: int

    def apply(self, stream: Stream) -> Stream:
        return stream.key_by(_key).transform_with_state(lambda: Numbering(self.padding))

    def evaluate(self, records: list[Any], parallelism: int) -> list[Any]:
        counts: dict[str, int] = defaultdict(int)
        for record in records:
            counts[record.key] += 1
        return [(key, n) for key, count in counts.items() for n in range(1, count + 1)]


class InBuckets:
    """A processor with event-time timers."""

    def apply(self, stream: Stream) -> Stream:
        return stream.key_by(_key).transform_with_state(Buckets, time_mode="event")

    def evaluate(self, records: list[Any], parallelism: int) -> list[Any]:
        found: dict[tuple[str, int], list[Record]] = defaultdict(list)
        for record in records:
            found[record.key, bucket_of(record)].append(record)
        return [
            (key, bucket, sum(r.value for r in rows), len(rows), _numbers(rows))
            for (key, bucket), rows in found.items()
        ]


@dataclass(frozen=True, slots=True)
class Windows:
    """Aggregated event-time windows."""

    size_ms: int
    slide_ms: int

    def apply(self, stream: Stream) -> Stream:
        return stream.key_by(_key).window(
            self.size_ms, self.slide_ms, value_of=_value, combine=plus
        )

    def evaluate(self, records: list[Any], parallelism: int) -> list[Any]:
        windows = _windows(records, self.size_ms, self.slide_ms)
        return [(key, start, sum(r.value for r in rows)) for (key, start), rows in windows.items()]


@dataclass(frozen=True, slots=True)
class RecordWindows:
    """Event-time windows that keep their records."""

    size_ms: int
    slide_ms: int

    def apply(self, stream: Stream) -> Stream:
        numbered = stream.map(tuple)
        return numbered.key_by(_key_of_tuple).window_records(
            self.size_ms, self.slide_ms, function=_contents
        )

    def evaluate(self, records: list[Any], parallelism: int) -> list[Any]:
        windows = _windows(records, self.size_ms, self.slide_ms)
        return [(key, start, _numbers(rows)) for (key, start), rows in windows.items()]


class Recount:
    """Behind another keyed operator: how many results fall into each of a few classes."""

    def apply(self, stream: Stream) -> Stream:
        return stream.key_by(_class_of).aggregate(one, plus, name="recount")

    def evaluate(self, records: list[Any], parallelism: int) -> list[Any]:
        counts: dict[int, int] = defaultdict(int)
        for result in records:
            counts[_class_of(result)] += 1
        return list(counts.items())


def _windows(
    records: Iterable[Record], size: int, slide: int
) -> dict[tuple[str, int], list[Record]]:
    found: dict[tuple[str, int], list[Record]] = defaultdict(list)
    for record in records:
        for start in range(record.time - record.time % slide, record.time - size, -slide):
            found[record.key, start].append(record)
    return found


def _numbers(records: Iterable[Record]) -> tuple[int, ...]:
    return tuple(sorted(record.number for record in records))


def _contents(key: Any, start: int, rows: list[Any]) -> Any:
    return key, start, tuple(sorted(row[1] for row in rows))


def _raised(record: Record) -> Record:
    return record._replace(value=2 * record.value + 1)


def _kept(record: Record) -> bool:
    return record.number % 4 != 0


def _doubled(record: Record) -> list[Record]:
    return [record, record._replace(number=-1 - record.number)]


def _same(record: Record) -> Record:
    return record


def _time(record: Record) -> int:
    return record.time


def _key(record: Record) -> str:
    return record.key


def _key_of_tuple(record: tuple[str, int, int, int]) -> str:
    return record[0]


def _value(record: Record) -> int:
    return record.value


def one(_: Any) -> int:
    return 1


def plus(left: int, right: int) -> int:
    return left + right


def _class_of(result: tuple[Any, ...]) -> int:
    return sum(part for part in result if isinstance(part, int)) % 5
