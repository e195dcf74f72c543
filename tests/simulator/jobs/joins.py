"""Drawn jobs with two streams: intervals, windows, and rows of a table as of a time.

Invariant: in a split a record is older than the greatest time before it by less than what
watermarks allow, so none is late, and what is joined does not depend on what is read first.
"""

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any, Final

from tests.simulator.jobs.plan import FixedPlan, Sinks
from tests.simulator.jobs.source import DISORDER_MS, Arrivals, Record, drawn_arrivals
from tests.simulator.jobs.stages import key_of, time_of
from tidelog.runtime.graph import Job, KeyedStream, Stream
from tidelog.runtime.operators.spans import WindowSpan

_SIZE_MS: Final = 700

Pair = tuple[Any, Any]
Build = Callable[[KeyedStream, KeyedStream], Stream]


def joins(rng: Random) -> FixedPlan:
    """Two sources whose splits lag behind each other, joined in one way."""
    left, right = _arrivals(rng, 0), _arrivals(rng, 100_000)
    how = rng.choice(("inner", "left", "outer"))
    build, pairs = rng.choice((_interval, _window, _newest))(rng, how)
    parallelism = rng.choice((1, 2, 3, 4))

    def made(sink: Sinks) -> Job:
        job = Job("joins", record_types=(Record,))
        streams = [
            job.source(arrivals, name=name)
            .event_time(time_of, max_delay_ms=DISORDER_MS)
            .key_by(key_of)
            for name, arrivals in (("left", left), ("right", right))
        ]
        build(*streams).map(_numbers).sink(sink("joined"), name="joined")
        return job

    written = Counter(map(_numbers, pairs(left.records, right.records)))
    return FixedPlan(parallelism=parallelism, build=made, expected={"joined": written})


def _arrivals(rng: Random, first: int) -> Arrivals:
    return drawn_arrivals(rng, lambda n, time: Record(f"k{rng.randrange(5)}", first + n, 0, time))


def _interval(rng: Random, how: Any) -> tuple[Build, Callable[..., list[Pair]]]:
    lower = rng.choice((-500, -40, 0, 100))
    upper = lower + rng.choice((0, 70, 900))

    def within(left: Record, right: Record) -> bool:
        return lower <= right.time - left.time <= upper

    return (
        lambda left, right: left.join(right, (lower, upper), how=how),
        lambda lefts, rights: _pairs(lefts, rights, within, how),
    )


def _window(rng: Random, how: Any) -> tuple[Build, Callable[..., list[Pair]]]:
    def together(left: Record, right: Record) -> bool:
        return left.time // _SIZE_MS == right.time // _SIZE_MS

    span = WindowSpan(_SIZE_MS, _SIZE_MS)
    return (
        lambda left, right: left.join(right, window=span, how=how),
        lambda lefts, rights: _pairs(lefts, rights, together, how),
    )


def _newest(rng: Random, how: Any) -> tuple[Build, Callable[..., list[Pair]]]:
    def version(record: Record, rows: list[Record]) -> int | None:
        of_key = [row.time for row in rows if row.key == record.key and row.time <= record.time]
        return max(of_key, default=None)

    # By their times: rows of one time are as good as each other.
    return (
        lambda left, right: left.enrich(right, lambda record, row: (record, row and row.time)),
        lambda lefts, rights: [(left, version(left, rights)) for left in lefts],
    )


def _pairs(
    lefts: list[Record], rights: list[Record], match: Callable[[Record, Record], bool], how: str
) -> list[Pair]:
    pairs: list[Pair] = [
        (left, right)
        for left in lefts
        for right in rights
        if left.key == right.key and match(left, right)
    ]
    paired = {record.number for pair in pairs for record in pair if record is not None}
    alone: list[Pair] = [(left, None) for left in lefts if left.number not in paired]
    if how == "outer":
        alone += [(None, right) for right in rights if right.number not in paired]
    return [*pairs, *(alone if how != "inner" else ())]


def _numbers(pair: Any) -> tuple[Any, ...]:
    return tuple(each.number if isinstance(each, Record) else each for each in pair)
