"""Drawn jobs over event time: logs of many servers, and windows with records that come too late.

Invariants: in a server's log a record is at most `DISORDER_MS` older than the greatest time
before it, so none is late, whichever subtask reads which split. A late record adds nothing, and
comes after a record of its key and window that is on time and after a mark that ends the window; so
it can only be seen when a window fires twice. When it comes to a window before its watermark, as
in flight over a restart, it is not late.
"""

from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter
from random import Random
from typing import Any, Final

from tests.simulator.jobs import stages
from tests.simulator.jobs.plan import FixedPlan, Graph, SourcePlan
from tests.simulator.jobs.source import DISORDER_MS, Arrivals, Record, Split, drawn_arrivals
from tests.simulator.machine.process import work
from tidelog import OutputTag, Row, Session, Sliding, Stream

_WRITTEN_MS: Final = 100_000
"""How long after a visit its line was written."""
_QUIET_S: Final = 8.0

_SIZE_MS: Final = stages.BUCKET_MS
_DISORDER_MS: Final = _SIZE_MS // 2
_LATE: Final = 0
"""The value of a late record."""
_FIRING_S: Final = 0.06
"""How long a window that fires keeps its process busy: longer than a turn, so barriers pass."""
_ROUNDS: Final = 6
_KEYS: Final = 12


def server_logs(rng: Random) -> FixedPlan:
    """Logs that lag, run ahead, are quiet or followed; `Row`s, as JSON lines become."""
    # Longer than a read takes in its thread: what is being read is not quiet.
    idle = rng.choice((None, 1500, 2500))
    ahead = rng.choice((200, 2000, 60_000))
    times = stages.event_time(DISORDER_MS, idle_after_ms=idle, max_ahead_ms=ahead)
    sources = [_logs(rng, number, times, idle) for number in range(rng.choice((1, 1, 2)))]
    branches = {f"sink-{n}": _log_branch(rng) for n in range(rng.choice((1, 2)))}
    parallelism = rng.choice((1, 2, 3, 4))
    if rng.random() < 0.3:
        # What an operator in between holds back does not make a split idle.
        again = stages.event_time(DISORDER_MS, max_ahead_ms=ahead)
        written = stages.event_time(DISORDER_MS, of=lambda record: int(record.time + _WRITTEN_MS))
        sources = [replace(source, stages=(written,)) for source in sources]
        first: tuple[stages.Stage, ...] = rng.choice(((again,), (stages.SPREAD, again)))
        branches = {sink: (*first, *branch) for sink, branch in branches.items()}
    return Graph(tuple(sources), branches, parallelism).plan()


def _logs(rng: Random, number: int, times: stages.Stage, idle: int | None) -> SourcePlan:
    def line(n: int, time: int) -> Row:
        page, value = f"page-{rng.randrange(6)}", rng.randrange(100)
        return Row.of(Record._fields, (page, 1_000_000 * number + n, value, time))

    # What is idle holds nobody back, so records that come after it may be late: where that counts,
    # all records are there from the start, and quiet splits have none.
    at_once = 0.4 if idle is None else 1.0
    # What is followed stays open when all of it was read.
    open_until = rng.choice((0.0, 0.0, _QUIET_S))
    arrivals = drawn_arrivals(
        rng, line, (1, 2, 3, 5), (0, 5, 40, 60), at_once=at_once, open_until=open_until
    )
    if rng.random() < 0.3:
        quiet = Split((), open_until=rng.random() * _QUIET_S)
        arrivals = replace(arrivals, splits={**arrivals.splits, "quiet": quiet})
    return SourcePlan(f"logs-{number}", arrivals, (times,))


def _log_branch(rng: Random) -> tuple[stages.Stage, ...]:
    size = rng.choice((400, 1500))
    slide = rng.choice((size, size // 2))
    gap = rng.choice((40, 150))
    of_windows = stages.sliding(size, slide).sums(), stages.sliding(size, slide).contents()
    of_sessions = stages.sessions(gap).sums(each=1000), stages.sessions(gap).contents()
    first = rng.choice((stages.BUCKETS, *of_windows, *of_sessions))
    return first, *((stages.RECOUNT,) if rng.random() < 0.3 else ())


def latecomers(rng: Random) -> FixedPlan:
    """One split with late records: each window fires once, in any shape of the job.

    Most windows take their time to fire, so that checkpoints are taken amid a firing, with the
    late records in flight before it.
    """
    chunk = rng.choice((2, 5, 10))
    records = tuple(_rounds(rng, chunk))
    split = Split(records, rng.choice((0.0, 4.0 / len(records))))
    times = (stages.event_time(_DISORDER_MS),)
    source = SourcePlan("records", Arrivals({"only": split}, chunk, 0.03), times, parallelism=1)
    windowed = (_fast_windows, _slow_windows, _slow_windows)
    accounts = (
        lambda size: _accounts(Sliding(size, size)),
        lambda size: _accounts(Session(size // 4)),
    )
    kind = rng.choice((*windowed, _slow_timers, _slow_timers, *accounts))
    parallelism = rng.choice((2, 3, 4))
    # Half a size: what is late for a window is late for all that hold it.
    slides = kind in windowed and rng.random() < 0.5
    branches = {"sums": (kind(_SIZE_MS // 2 if slides else _SIZE_MS),)}
    return Graph((source,), branches, parallelism).plan()


def _rounds(rng: Random, chunk: int) -> list[Record]:
    """Records of a window, a mark that ends it, and late ones for it, round after round."""
    records: list[Record] = []

    def add(key: str, time: int, value: int) -> None:
        records.append(Record(key, len(records), value, time))

    for start in range(-2 * _SIZE_MS, (_ROUNDS - 2) * _SIZE_MS, _SIZE_MS):
        begun = len(records)
        for _ in range(rng.choice((5, 20))):
            time = start + 2 + rng.randrange(_DISORDER_MS - 4)
            add(f"k{rng.randrange(_KEYS)}", time, 1 + rng.randrange(9))
        # Whichever read the first mark is in, the last one is in another.
        for _ in range(chunk + 1):
            add("mark", start + _SIZE_MS + _DISORDER_MS + 1, 1)
        for key in sorted({record.key for record in records[begun:]} - {"mark"}):
            add(key, start + rng.randrange(_DISORDER_MS), _LATE)
    return records


def _fast_windows(slide_ms: int) -> stages.Stage:
    """Sums of what is on time."""
    return _on_time(slide_ms, stages.sliding(_SIZE_MS, slide_ms).sums().apply)


def _slow_windows(slide_ms: int) -> stages.Stage:
    """Windows of records, whose function takes its time."""

    def summed(key: str, start: int, rows: list[Any]) -> tuple[str, int, int]:
        work(_FIRING_S)
        return key, start, stages.total(rows)

    def apply(stream: Stream) -> Stream:
        return stream.key_by(stages.key_of).window(Sliding(_SIZE_MS, slide_ms)).records(summed)

    return _on_time(slide_ms, apply)


def _slow_timers(slide_ms: int) -> stages.Stage:
    """Windows by hand: state and a timer for each of them."""

    def apply(stream: Stream) -> Stream:
        return stream.key_by(stages.key_of).transform_with_state(_SlowBuckets, time_mode="event")

    return _on_time(slide_ms, apply)


def _on_time(slide_ms: int, apply: Callable[[Stream], Stream]) -> stages.Stage:
    """Sums by window of the records that are on time, made in some way."""
    sums = stages.sliding(_SIZE_MS, slide_ms).sums().evaluate
    return stages.Stage(apply, lambda records: sums([r for r in records if r.value != _LATE]))


def _accounts(span: Sliding | Session) -> stages.Stage:
    """Every record once: in its window or session, or late."""
    number = attrgetter("number")

    def numbers(*window: Any) -> list[int]:
        work(_FIRING_S)
        return list(map(number, window[-1]))

    def apply(stream: Stream) -> Stream:
        late = OutputTag("late")
        fired = stream.key_by(stages.key_of).window(span, late=late).records(numbers)
        return fired.flat_map(list).union(fired.side_output(late).map(number))

    return stages.Stage(apply, lambda records: [record.number for record in records])


class _SlowBuckets(stages.Buckets):
    """Sums by key and window, whose timers take their time."""

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Any:
        work(_FIRING_S)
        for who, end, held, *_ in super().handleExpiredTimer(key, timerValues, expiredTimerInfo):
            yield who, end - _SIZE_MS, held
