"""Drawn jobs with two streams: intervals, windows, and rows of a table as of a time.

Invariant: in a split a record is older than the greatest time before it by less than what
watermarks allow, so none is late, and what is joined does not depend on what is read first.
"""

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any, Final

from tests.simulator.jobs.job_plan import FixedPlan, Sinks
from tests.simulator.jobs.source import Arrivals, Record, Split, Splits, records_of
from tests.simulator.jobs.stages import key_of, time_of
from tidelog.runtime.graph import Job, KeyedStream, Stream
from tidelog.runtime.operators.spans import WindowSpan

_DISORDER_MS: Final = 300
_PAUSE_S: Final = 0.05
_SIZE_MS: Final = 700

Pair = tuple[Any, Any]
Build = Callable[[KeyedStream, KeyedStream], Stream]


def joins(rng: Random) -> FixedPlan:
    """Two sources whose splits lag behind each other, joined in one way."""
    left, right = _splits(rng, 0), _splits(rng, 100_000)
    how = rng.choice(("inner", "left", "outer"))
    kind, build, pairs = rng.choice((_interval, _window, _newest))(rng, how)
    chunk, parallelism = rng.choice((2, 10)), rng.choice((1, 2, 3, 4))

    def made(sink: Sinks) -> Job:
        job = Job("joins", record_types=(Record,))
        streams = [
            job.source(Arrivals(splits, chunk, _PAUSE_S), name=name)
            .event_time(time_of, max_delay_ms=_DISORDER_MS)
            .key_by(key_of)
            for name, splits in (("left", left), ("right", right))
        ]
        build(*streams).map(_numbers).sink(sink("joined"), name="joined")
        return job

    written = Counter(map(_numbers, pairs(records_of(left), records_of(right))))
    about = f"{kind}, {how}; {len(left)} and {len(right)} splits"
    return FixedPlan(about, parallelism, made, {"joined": written})


def _splits(rng: Random, first: int) -> Splits:
    return {f"split-{n}": _split(rng, first + 10_000 * n) for n in range(rng.choice((1, 2, 3)))}


def _split(rng: Random, first: int) -> Split:
    length = rng.choice((0, 5, 30, 60))
    begins, pace = rng.randrange(-2000, 2000), rng.choice((5, 40, 80))

    def record(n: int) -> Record:
        time = begins + n * pace + rng.randrange(_DISORDER_MS)
        return Record(f"k{rng.randrange(5)}", first + n, 0, time)

    records = tuple(map(record, range(length)))
    return Split(records, 0.0 if rng.random() < 0.4 else 4.0 / max(1, length))


def _interval(rng: Random, how: Any) -> tuple[str, Build, Callable[..., list[Pair]]]:
    lower = rng.choice((-500, -40, 0, 100))
    upper = lower + rng.choice((0, 70, 900))

    def within(left: Record, right: Record) -> bool:
        return lower <= right.time - left.time <= upper

    return (
        f"within {lower} to {upper} ms",
        lambda left, right: left.join(right, (lower, upper), how=how),
        lambda lefts, rights: _pairs(lefts, rights, within, how),
    )


def _window(rng: Random, how: Any) -> tuple[str, Build, Callable[..., list[Pair]]]:
    def together(left: Record, right: Record) -> bool:
        return left.time // _SIZE_MS == right.time // _SIZE_MS

    span = WindowSpan(_SIZE_MS, _SIZE_MS)
    return (
        "one window",
        lambda left, right: left.join(right, window=span, how=how),
        lambda lefts, rights: _pairs(lefts, rights, together, how),
    )


def _newest(rng: Random, how: Any) -> tuple[str, Build, Callable[..., list[Pair]]]:
    def version(record: Record, rows: list[Record]) -> int | None:
        of_key = [row.time for row in rows if row.key == record.key and row.time <= record.time]
        return max(of_key, default=None)

    # By their times: rows of one time are as good as each other.
    return (
        "newest row",
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
