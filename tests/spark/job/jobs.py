"""Jobs with every keyed operator: the same graph runs embedded and on Spark.

Imported by Spark's Python workers too, by this module's name.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from operator import add, attrgetter, itemgetter
from pathlib import Path
from typing import Any

from tidelog import (
    Count,
    FileSink,
    Job,
    JsonLinesSource,
    OutputTag,
    Row,
    Session,
    Sink,
    Sliding,
    StatefulProcessor,
    Stream,
    Tumbling,
)

START_MS = 1_700_000_000_000
DELAY_MS = 3_000
END = "end"
"""The key of the last record, long after all others: what is before it has fired by then."""
LATE = OutputTag("late")
Records = list[dict[str, Any]]


def batches(seed: int = 7, records: int = 400, parts: int = 3) -> list[Records]:
    """Records of some keys, out of order by less than the delay; the last part ends with `END`."""
    draw = random.Random(seed)
    time, rows = START_MS, Records()
    for number in range(records):
        time += draw.randrange(200)
        rows.append(
            {
                "k": f"key-{draw.randrange(12)}",
                "t": time - draw.randrange(DELAY_MS // 2),
                "n": number,
                "v": draw.randrange(1000),
                "tag": draw.choice("abc"),
            }
        )
    end = {"k": END, "t": time + 10_000_000, "n": records, "v": 0, "tag": END}
    size = -(-records // parts)
    cut = [rows[start : start + size] for start in range(0, records, size)]
    return [*cut[:-1], [*cut[-1], end]]


def inputs(parts: int = 3) -> dict[str, list[Records]]:
    """The batches of each source that some job has."""
    source = batches(parts=parts)
    sides: dict[str, list[Records]] = {"left": [], "right": []}
    for part in source:
        *rows, last = part
        rows, ends = (rows, [last]) if last["k"] == END else (part, [])
        sides["left"].append([*rows[::2], *ends])
        sides["right"].append([*rows[1::2], *ends])
    table = [rows for part in sides["right"] for rows in part]
    other = batches(seed=11, parts=parts)
    return {"source": source, "other": other, "table": [table, *[[]] * (parts - 1)], **sides}


@dataclass(frozen=True)
class Stat:
    """A value of types that Spark does not have."""

    n: int
    tags: frozenset[str]
    total: Decimal


def stat(row: Row) -> Stat:
    return Stat(1, frozenset([row.tag]), Decimal(row.v) / 7)


def both(one: Stat, other: Stat) -> Stat:
    return Stat(one.n + other.n, one.tags | other.tags, max(one.total, other.total))


def text(record: Any) -> dict[str, str]:
    """Any output as a line, whose parts are compared as they print; the key is first."""
    key = record[0] if isinstance(record, tuple) and not isinstance(record, Row) else record.k
    return {"k": str(key), "is": _shown(record)}


def _shown(value: Any) -> str:
    if isinstance(value, frozenset):
        return ",".join(sorted(value))
    if isinstance(value, Stat):
        return f"{value.n} {_shown(value.tags)} {value.total}"
    if isinstance(value, tuple | list):
        return "(" + "; ".join(map(_shown, value)) + ")"
    return repr(value)


class Streaks(StatefulProcessor):
    """Rows in the order of time by timers, in states of types that `transform` refuses, with a time
    to live.
    """

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.waiting = handle.getMapState("waiting", "t bigint, n bigint", "v decimal(20,3)")
        self.seen = handle.getValueState("seen", "m map<string,bigint>, f float", 3_600_000)
        self.names = handle.getListState("names", "n bigint")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        for row in rows:
            self.waiting.updateValue((row.t, row.n), (Decimal(row.v) / 1000,))
            self.handle.registerTimer(row.t)
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Any:
        time = expiredTimerInfo.getExpiryTimeInMs()
        for (of, n), (value,) in list(self.waiting.iterator()):
            if of != time:
                continue
            self.waiting.removeKey((of, n))
            counts, mean = self.seen.get() or ({}, 0.0)
            self.names.appendValue((n,))
            self.seen.update(({**counts, str(n % 3): counts.get(str(n % 3), 0) + 1}, mean / 3 + n))
            last = [name for (name,) in self.names.get()][-3:]
            yield (key[0], time, n, value, sorted(counts.items()), mean, last)


class Running(StatefulProcessor):
    """Counts without times."""

    def init(self, handle: Any) -> None:
        self.total = handle.getReducingState("total", "v bigint", lambda a, b: (a[0] + b[0],))

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        for row in rows:
            self.total.add((row.v,))
            yield (key[0], self.total.get()[0])


class Clocked(StatefulProcessor):
    """A timer of processing time that is due at once."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.rows = handle.getListState("rows", "n bigint")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        for row in rows:
            self.rows.appendValue((row.n,))
        self.handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + 1)
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Any:
        for (n,) in list(self.rows.get()):
            yield (key[0], n)
        self.rows.clear()


def pair_up(record: Row, row: Row | None) -> tuple[Any, ...]:
    return record.k, record.n, None if row is None else row.n


def first_records(start: int, records: list[Row]) -> list[int]:
    return sorted(record.n for record in records)


def _timed(job: Job, directory: Path, name: str = "source") -> Stream:
    return job.source(JsonLinesSource(directory / name), name=name).event_time(
        attrgetter("t"), max_delay_ms=DELAY_MS, name=f"time-{name}"
    )


class Outputs:
    """Ends streams in a directory for each."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def end(self, name: str, stream: Stream) -> None:
        lines = stream.map(text, name=f"{name}-text")
        lines.sink(FileSink(self._directory / name), name=f"{name}-out")


def windows(source: Path, output: Path) -> Job:
    job, out = Job("windows"), Outputs(output)
    keyed = _timed(job, source).key_by(attrgetter("k"))
    out.end("session", keyed.window(Session("1500ms"), name="session").aggregate(stat, both))
    big = lambda row: 2**70 + row.v  # noqa: E731
    out.end("tumbling", keyed.window(Tumbling("7s"), name="tumbling").aggregate(big, add))
    out.end("sliding", keyed.window(Sliding("9s", "2s"), name="sliding").aggregate(big, add))
    top = keyed.window(Tumbling("20s"), name="top").top(3, by=attrgetter("v", "n"))
    out.end("top", top)
    records = keyed.window(Sliding("6s", "3s"), name="records").records(
        lambda key, start, rows: (key, start, sorted(row.n for row in rows))
    )
    out.end("records", records)
    late = keyed.window(Tumbling("5s"), name="lateness", allowed_lateness="2s", late=LATE)
    out.end("lateness", late.count())
    return job


def keyed(source: Path, output: Path) -> Job:
    job, out = Job("keyed"), Outputs(output)
    stream = job.source(JsonLinesSource(source / "source")).key_by(attrgetter("k"))
    value: Callable[[Any], Any] = attrgetter("v")
    out.end("count", stream.count(emit_updates=True))
    out.end("sum", stream.sum(value, emit_updates=True))
    out.end("mean", stream.mean(value, emit_updates=True))
    out.end("running-top", stream.top(2, by=attrgetter("v", "n"), emit_updates=True, name="tops"))
    out.end("aggregate", stream.aggregate(stat, both, emit_updates=True))
    out.end("count-window", stream.window(Count(7), name="sevens").count())
    first = stream.deduplicate(attrgetter("tag"), ttl="1h")
    out.end("deduplicate", first.map(attrgetter("k", "tag"), name="first-tag"))
    return job


def joins(source: Path, output: Path) -> Job:
    job, out = Job("joins"), Outputs(output)
    left, right = (_timed(job, source, name).key_by(attrgetter("k")) for name in ("left", "right"))
    both = lambda pair: (  # noqa: E731
        (pair[0] or pair[1]).k,
        pair[0] and pair[0].n,
        pair[1] and pair[1].n,
    )
    pairs = left.join(right, ("-2s", "2s"), name="inner")
    out.end("inner-join", pairs.map(both, name="inner-pair"))
    left_join = left.join(right, window=Tumbling("4s"), how="left", name="left-join")
    out.end("left-join", left_join.map(both, name="left-pair"))
    outer = left.join(right, ("-300ms", "300ms"), how="outer", name="outer-join")
    out.end("outer-join", outer.map(both, name="outer-pair"))
    out.end("enrich", left.enrich(right, pair_up, name="enrich"))
    table = job.source(JsonLinesSource(source / "table"), name="table").key_by(attrgetter("k"))
    now = left.enrich(table, pair_up, time="processing", name="enrich-now")
    out.end("enrich-now", now)
    return job


def processors(source: Path, output: Path) -> Job:
    job, out = Job("processors"), Outputs(output)
    stream = _timed(job, source).key_by(attrgetter("k"))
    out.end("streaks", stream.transform_with_state(Streaks, time_mode="event", name="streaks"))
    out.end("running", stream.transform_with_state(Running, name="running"))
    once = stream.deduplicate(attrgetter("n"), ttl="1h", name="once")
    again = once.key_by(attrgetter("tag"), key_type=str)
    several = again.window(Tumbling("30s"), name="of-once").count()
    out.end("several", several)
    most = several.key_by(itemgetter(0)).max(itemgetter(2), emit_updates=True, name="most")
    out.end("maximum", most)
    united = stream.union(_timed(job, source, "other")).key_by(attrgetter("k"))
    out.end("union", united.window(Tumbling("7s"), name="of-union").count())
    return job


def clocks(source: Path, output: Path) -> Job:
    job, out = Job("clocks"), Outputs(output)
    stream = job.source(JsonLinesSource(source / "source")).key_by(attrgetter("k"))
    clocked = stream.transform_with_state(Clocked, time_mode="processing", name="clocked")
    out.end("clocked", clocked)
    return job


UPDATES = frozenset({"count", "sum", "mean", "running-top", "aggregate", "maximum", "running"})
"""Outputs that are updates, as many as there are buffers: the last one of a key is compared."""


def tables(source: Path, sinks: Mapping[str, Sink]) -> Job:
    """Windows of files in tables."""
    job = Job("tables")
    keyed = _timed(job, source).key_by(attrgetter("k"))
    counts = keyed.window(Tumbling("5s"), name="counts").count()
    for name, sink in sinks.items():
        counts.sink(sink, name=name)
    return job


Line = tuple[str, str]
"""The key and the text of an output."""


def compared(lines: list[Line], name: str) -> Counter[Line]:
    """The lines of an output as a multiset."""
    return Counter(dict(lines).items() if name in UPDATES else lines)


def lines_of(directory: Path) -> list[Line]:
    """The lines of an output in the order written, by subtask; without those of the end."""
    from msgspec.json import decode  # noqa: PLC0415  (workers do not read)

    found: list[Line] = []
    for path in sorted(directory.glob("*part-*"), key=lambda path: path.name.lstrip("_")):
        rows: Iterable[Any] = map(decode, path.read_bytes().splitlines())
        found += [(row["k"], row["is"]) for row in rows if row["k"] != END]
    return found
