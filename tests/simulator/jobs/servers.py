"""Logs of several servers: event time over many splits, of which some are behind, ahead or quiet.

Invariant: within a split a record is behind the greatest time before it by `DISORDER_MS` at most,
so none is late, whichever subtask reads which split.
"""

from dataclasses import replace
from random import Random
from typing import Final

from tests.simulator.jobs.plan import Branch, Plan, SourcePlan
from tests.simulator.jobs.source import Arriving, Followed
from tests.simulator.jobs.stages import (
    EventTime,
    InBuckets,
    RecordWindows,
    Recount,
    Spread,
    Stage,
    Windows,
)
from tidelog.runtime.graph import Stream
from tidelog.state.schema.row import Row

DISORDER_MS: Final = 300
_FIELDS: Final = ("key", "number", "value", "time")
_AWAY_MS: Final = 5000
_WRITTEN_MS: Final = 100_000
"""How long after a visit its line was written."""
_PAUSES_S: Final = 4.0
_QUIET_S: Final = 8.0


def server_logs(rng: Random) -> Plan:
    """A random job over such logs; `Row`s, as JSON lines become."""
    # Longer than a read takes in its thread: what is being read is not quiet.
    idle = rng.choice((None, 1500, 2500))
    event_time = EventTime(DISORDER_MS, idle, rng.choice((200, 2000, 60_000)))
    sources = tuple(_source(rng, number, event_time) for number in range(rng.choice((1, 1, 2))))
    branches = [_branch(rng, number) for number in range(rng.choice((1, 2)))]
    parallelism = rng.choice((1, 2, 3, 4))
    if rng.random() < 0.3:
        sources = tuple(map(_followed, sources))
    if rng.random() < 0.3:
        # What an operator in between holds back does not make a split idle.
        event_time = replace(event_time, idle_after_ms=None)
        sources = tuple(replace(each, stages=(Written(DISORDER_MS),)) for each in sources)
        behind: tuple[Stage, ...] = rng.choice(((event_time,), (Spread(), event_time)))
        branches = [replace(each, stages=(*behind, *each.stages)) for each in branches]
    return Plan(sources, tuple(branches), parallelism)


class Written(EventTime):
    """Event time of when lines were written, which another one replaces."""

    def apply(self, stream: Stream) -> Stream:
        return stream.event_time(_written, max_delay_ms=self.max_delay_ms)


def _followed(source: SourcePlan) -> SourcePlan:
    """The source with one log that is followed, so that its end is never known."""
    together = Followed(source.splits)
    splits = {name: replace(log, followed=together) for name, log in source.splits.items()}
    return replace(source, splits=splits)


def _source(rng: Random, number: int, event_time: EventTime) -> SourcePlan:
    # What is idle holds nobody back, so records that come after it may be late: where that counts,
    # all records are there from the start, and quiet splits have none.
    at_once = event_time.idle_after_ms is not None or rng.random() < 0.4
    splits = {}
    for at in range(rng.choice((1, 2, 3, 5))):
        first = 1_000_000 * number + 10_000 * at
        splits[f"server-{at}"] = _log(rng, first, at_once=at_once)
    if rng.random() < 0.3:
        splits["quiet"] = Arriving((), (), open_until=rng.random() * _QUIET_S)
    portion = rng.choice((3, 10, 50))
    return SourcePlan(
        f"logs-{number}",
        splits,
        portion,
        rng.choice((0.03, 0.1)),
        (event_time,),
        blocking=rng.random() < 0.5,
    )


def _log(rng: Random, first: int, *, at_once: bool) -> Arriving:
    length = rng.choice((0, 5, 40, 60))
    begins, pace = rng.randrange(-_AWAY_MS, _AWAY_MS), rng.choice((5, 40, 80))
    records = tuple(
        Row.of(
            _FIELDS,
            (
                f"page-{rng.randrange(6)}",
                first + n,
                rng.randrange(100),
                begins + n * pace + rng.randrange(DISORDER_MS),
            ),
        )
        for n in range(length)
    )
    seconds = rng.random() * _PAUSES_S / max(1, length)
    return Arriving(records, tuple(0.0 if at_once else n * seconds for n in range(length)))


def _branch(rng: Random, number: int) -> Branch:
    size = rng.choice((400, 1500))
    slide = rng.choice((size, size // 2))
    stages: list[Stage] = [
        rng.choice((InBuckets(), Windows(size, slide), RecordWindows(size, slide)))
    ]
    if rng.random() < 0.3:
        stages.append(Recount())
    return Branch(tuple(stages), f"sink-{number}")


def _written(record: Row) -> int:
    time: int = record.time
    return time + _WRITTEN_MS
