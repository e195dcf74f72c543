"""Reductions and windows in whole jobs: what comes out is what plain Python makes of all records.

A job is broken off in one shape, goes on in another from an unaligned checkpoint, is broken off
again and ends in a third one. Its logs are out of order; where records may be late, logs that
others wait for are idle.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from random import Random
from typing import Any, Final, NamedTuple

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.property.profiles import looking
from tests.property.test_rescaled_jobs import Breaking
from tests.simulator.jobs.stages import BY_KEY, Groups, sessions, sliding, total
from tests.support.pipelines import Outside, config, run
from tidelog import Count, Job, KeyedStream, OutputTag, Session, Sliding, Stream, Tumbling
from tidelog.errors import UserFunctionError
from tidelog.runtime.config import UnalignedConfig
from tidelog.storage.memory import MemoryStore

DISORDER_MS: Final = 200
GAP_MS: Final = 120
SIZE_MS: Final = 400
SHAPES: Final = (1, 3, 2)


class Visit(NamedTuple):
    key: str
    time: int
    value: int
    number: int


value_of = itemgetter(2)
number_of = itemgetter(3)
Records = list[Visit]
LATE: Final = OutputTag("late")


@dataclass(frozen=True)
class Case:
    """An operator, and what is to come out."""

    build: Callable[[KeyedStream], Stream]
    wanted: Callable[[Records], Iterable[Any]]
    read: Callable[[list[Any]], Iterable[Any]] = list
    """What to compare of what came out."""
    max_delay_ms: int = DISORDER_MS
    idle_after_ms: int | None = None


def each(groups: Groups, function: Callable[[Records], Any]) -> Callable[[Records], list[Any]]:
    """What the function makes of the records of each group."""
    return lambda records: [(*group, function(some)) for group, some in groups(records).items()]


def mean(records: Records) -> float:
    return total(records) / len(records)


def numbers(records: Iterable[Any]) -> tuple[int, ...]:
    return tuple(sorted(map(number_of, records)))


def newest(emitted: list[Any]) -> list[Any]:
    """The last of counts that only grow; none of them came twice."""
    assert max(Counter(emitted).values()) == 1
    last: dict[Any, int] = {}
    for *window, count in emitted:
        last[tuple(window)] = max(count, last.get(tuple(window), 0))
    return [(*window, count) for window, count in last.items()]


def largest_first(records: Records) -> list[int]:
    return sorted(map(value_of, records), reverse=True)[:3]


def kept(*window: Any) -> Any:
    *fields, records = window
    return *fields, numbers(records)


def accounts(keyed: KeyedStream) -> Stream:
    """Every record once: in a session, or late."""
    fired = keyed.window(Session(GAP_MS), late=LATE).records(kept)
    late = fired.side_output(LATE).map(number_of)
    return fired.flat_map(itemgetter(3)).union(late)


CASES: Final = {
    "sum": Case(lambda k: k.sum(value_of), each(BY_KEY, total)),
    "mean": Case(lambda k: k.mean(value_of), each(BY_KEY, mean)),
    "min": Case(lambda k: k.min(number_of), each(BY_KEY, lambda some: min(numbers(some)))),
    "max": Case(lambda k: k.max(number_of), each(BY_KEY, lambda some: max(numbers(some)))),
    "reduce": Case(
        lambda k: k.reduce(max),
        each(BY_KEY, max),
        lambda out: [(key, Visit(*record)) for key, record in out],
    ),
    "top": Case(
        lambda k: k.top(3, by=value_of).map(lambda out: (out[0], tuple(map(value_of, out[1])))),
        each(BY_KEY, lambda some: tuple(largest_first(some))),
    ),
    "updates": Case(lambda k: k.count(emit_updates=True), each(BY_KEY, len), newest),
    "tumbling": Case(
        lambda k: k.window(Tumbling(SIZE_MS)).sum(value_of),
        each(sliding(SIZE_MS, SIZE_MS).groups, total),
    ),
    "sliding": Case(
        lambda k: k.window(Sliding(SIZE_MS, 150)).mean(value_of),
        each(sliding(SIZE_MS, 150).groups, mean),
    ),
    "kept": Case(
        lambda k: k.window(Tumbling("400 ms")).records(kept),
        each(sliding(SIZE_MS, SIZE_MS).groups, numbers),
    ),
    "updated windows": Case(
        lambda k: k.window(Sliding(SIZE_MS, 200), emit="updates").count(),
        each(sliding(SIZE_MS, 200).groups, len),
        newest,
    ),
    "late windows": Case(
        lambda k: k.window(Tumbling(SIZE_MS), allowed_lateness="1h").count(),
        each(sliding(SIZE_MS, SIZE_MS).groups, len),
        newest,
        max_delay_ms=0,
        idle_after_ms=1500,
    ),
    "sessions": Case(
        lambda k: k.window(Session(GAP_MS)).sum(value_of), each(sessions(GAP_MS).groups, total)
    ),
    "kept sessions": Case(
        lambda k: k.window(Session(GAP_MS)).records(kept), each(sessions(GAP_MS).groups, numbers)
    ),
    "top of sessions": Case(
        lambda k: (
            k.window(Session(GAP_MS))
            .top(3, by=value_of)
            .map(lambda out: (*out[:3], tuple(map(value_of, out[3]))))
        ),
        each(sessions(GAP_MS).groups, lambda some: tuple(largest_first(some))),
    ),
    "late records": Case(
        accounts,
        lambda records: [record.number for record in records],
        max_delay_ms=0,
        idle_after_ms=1500,
    ),
    "counts": Case(
        lambda k: k.window(Count(4)).count(),
        lambda records: [
            (key, 4) for (key,), some in BY_KEY(records).items() for _ in range(len(some) // 4)
        ],
    ),
    "kept counts": Case(
        lambda k: k.window(Count(4)).records(kept),
        lambda records: [
            (key, 4, True)
            for (key,), some in BY_KEY(records).items()
            for _ in range(len(some) // 4)
        ],
        lambda out: [(key, len(some), once(out)) for key, some in out],
    ),
    "deduplicate": Case(
        lambda k: k.deduplicate(value_of, ttl="1d"),
        lambda records: {(record.key, record.value) for record in records},
        lambda out: [(key, value) for key, _, value, _ in out],
    ),
}


def once(out: list[Any]) -> bool:
    """Whether no record was emitted twice."""
    found = [number for _, some in out for number in some]
    return len(set(found)) == len(found)


def drawn(rng: Random, splits: int, length: int) -> dict[str, Records]:
    keys = rng.choice((1, 3, 8))

    def visit(split: int, n: int) -> Visit:
        time = n * 60 - 500 + rng.randrange(DISORDER_MS)
        return Visit(f"k{rng.randrange(keys)}", time, rng.randrange(9), 1000 * split + n)

    return {f"log-{s}": [visit(s, n) for n in range(length)] for s in range(splits)}


@pytest.mark.parametrize("name", CASES)
@looking(2)
@given(st.integers(0, 1 << 30))
def test_what_comes_out_is_what_plain_python_makes_of_all_records(name: str, seed: int) -> None:
    case, rng = CASES[name], Random(seed)
    source, sink, store = Breaking(0, "log"), Outside(), MemoryStore("memory://windowed")
    source.splits = drawn(rng, rng.choice((1, 3)), 40)  # type: ignore[assignment]
    shapes: Sequence[int] = rng.sample(SHAPES, 3)
    for number, parallelism in enumerate(shapes):
        last = number == len(shapes) - 1
        source.left = None if last else rng.randrange(3, 9)
        job = Job("windowed")
        timed = job.source(source).event_time(
            itemgetter(1), max_delay_ms=case.max_delay_ms, idle_after_ms=case.idle_after_ms
        )
        case.build(timed.key_by(itemgetter(0))).sink(sink)
        settings = config(
            parallelism=parallelism, key_groups=16, unaligned=UnalignedConfig("always")
        )
        if last:
            run(job, store, settings, seed=number)
        else:
            with pytest.raises(UserFunctionError, match="the break"):
                run(job, store, settings, seed=number)
    records = [record for records in source.splits.values() for record in records]
    wanted = case.wanted([Visit(*record) for record in records])
    assert Counter(map(tuple_of, case.read(sink.records))) == Counter(wanted)


def tuple_of(record: Any) -> Any:
    return tuple(record) if isinstance(record, list) else record
