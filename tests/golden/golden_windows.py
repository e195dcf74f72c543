"""The job of the golden store of windows, joins and ids.

The job was stopped with a savepoint in the middle. With the store are the records that came out
afterwards, as text: those of a run that nothing stopped without those that had come out before.
"""

from collections import Counter
from collections.abc import Callable
from operator import itemgetter
from typing import Any

import msgspec

from tests.support.jobs import contents
from tests.support.pipelines import Portions, acted_on, config, run
from tidelog import (
    Count,
    ForeachSink,
    Job,
    KeyedStream,
    OutputTag,
    Session,
    Sliding,
    Stream,
    Tumbling,
)
from tidelog.storage.memory import MemoryStore

DELAY_MS = 1_500
NAME = "store_windows_v1.bin"
KINDS = {
    *("timed-records", "timed-batches", "timed-marks", "sessions", "earlier-sessions", "splits"),
    *("count-window", "window-aggregate", "window-records", "timers", "aggregate", "ids", "map"),
}
"""The kinds of state that the job has."""

OPERATORS: dict[str, Callable[[KeyedStream, KeyedStream], Stream]] = {
    "inner": lambda left, right: left.join(right, (-150, "250ms")),
    "interval": lambda left, right: left.join(right, (-150, "250ms"), how="outer"),
    "same-window": lambda left, right: left.join(right, window=Sliding(300, 200), how="left"),
    "newest": lambda left, right: left.enrich(right, lambda record, row: (record, row)),
    "now": lambda left, _: left.enrich(left, lambda record, _: record, time="processing"),
    "sessions": lambda left, _: left.window(Session(40)).sum(itemgetter(2)),
    "kept-sessions": lambda left, _: left.window(Session(110)).records(
        lambda key, start, end, records: (key, start, end, sorted(records))
    ),
    "late-sessions": lambda left, _: left.window(Session(50), allowed_lateness=9_000).count(),
    "tumbling": lambda left, _: left.window(Tumbling(700)).mean(itemgetter(2)),
    "late-tumbling": lambda left, _: left.window(
        Tumbling(400), allowed_lateness="1m", late=OutputTag("late")
    ).count(),
    "sliding": lambda left, _: left.window(Sliding(500, 200)).max(itemgetter(2)),
    "kept": lambda left, _: left.window(Sliding(600, 300)).records(
        lambda key, start, records: (key, start, sorted(records))
    ),
    "sevens": lambda left, _: left.window(Count(7)).sum(itemgetter(2)),
    "ids": lambda left, _: left.deduplicate(lambda record: record[2] % 9, ttl="300d"),
}


def job(emit: Callable[[Any], Any]) -> Job:
    made = Job("golden")
    left, right = (
        made.source(Portions({name: records(step, name)}), name=name)
        .event_time(itemgetter(1), max_delay_ms=DELAY_MS)
        .key_by(itemgetter(0))
        for name, step in (("left", 3), ("right", 7))
    )
    for name, build in OPERATORS.items():
        named = build(left, right).map(lambda record, name=name: (name, record), name=f"{name}-out")
        named.sink(ForeachSink(emit), name=f"{name}-sink")
    return made


def records(step: int, name: str) -> list[Any]:
    """(key, time, number, side), out of order by less than the delay."""
    times = [100 * n + step * n * n % 1_300 for n in range(60)]
    return [(f"k{n % 4 // 2}", time, n, name) for n, time in enumerate(times)]


def stopped() -> bytes:
    store, before, whole = MemoryStore(), list[str](), list[str]()
    acted_on(
        job(lambda record: before.append(repr(record))),
        store,
        lambda runner: runner.stop("golden"),
        at=4.2,
        settings=config(parallelism=1, retain=1),
    )
    run(job(lambda record: whole.append(repr(record))), MemoryStore())
    wanted = Counter(whole) - Counter(before)
    assert wanted.total() == len(whole) - len(before) > 0 < len(before)
    packed = {"objects": contents(store), "wanted": sorted(wanted.elements())}
    return msgspec.msgpack.encode(packed)


FILES: dict[str, Callable[[], bytes]] = {NAME: stopped}
