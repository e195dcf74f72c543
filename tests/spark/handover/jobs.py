"""A job with windows of values that Spark has no type for, and a function with TTL and decimals.

Invariant: imported by Spark's Python workers too, by this module's name.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from operator import add, attrgetter
from pathlib import Path
from typing import Any

from tests.spark.handover.functions import DELAY_MS
from tidelog import (
    FileSink,
    Job,
    JsonLinesSource,
    Row,
    Session,
    Source,
    SplitReader,
    StatefulProcessor,
    Tumbling,
)
from tidelog.state.event_time import MAX_WATERMARK

FIELDS = ("what", "k", "time_ms", "value")


@dataclass(frozen=True)
class Stat:
    n: int
    tags: frozenset[str]
    total: Decimal


def stat(row: Any) -> Stat:
    return Stat(1, frozenset([row.tag]), Decimal(row.v) / 7)


def both(a: Stat, b: Stat) -> Stat:
    return Stat(a.n + b.n, a.tags | b.tags, max(a.total, b.total))


def large(row: Any) -> int:
    return int(2**70 + row.v)


class Shares(StatefulProcessor):
    """State of types that Spark would change, and a TTL."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.waiting = handle.getMapState("waiting", "time_ms bigint, v bigint", "tag string")
        self.state = handle.getValueState(
            "state", "d decimal(30,6), m map<string,bigint>, f float", 86_400_000
        )

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        for row in rows:
            self.waiting.updateValue((row.time_ms, row.v), (row.tag,))
            self.handle.registerTimer(row.time_ms)
        return iter(())

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Any]:
        if timerValues.getCurrentWatermarkInMs() == MAX_WATERMARK:
            return
        now = expiredTimerInfo.getExpiryTimeInMs()
        for (time, v), (tag,) in list(self.waiting.iterator()):
            if time != now:
                continue
            self.waiting.removeKey((time, v))
            d, m, f = self.state.get() or (Decimal(0), {}, 0.0)
            m = {**m, tag: m.get(tag, 0) + 1}
            self.state.update((d + Decimal(v) / Decimal(1_000_000), m, f / 3 + v))
            yield ("shares", key[0], now, f"{d} {m} {f}")


def session_row(session: Any) -> tuple[Any, ...]:
    key, start, end, value = session
    return ("session", key, start, f"{end} {value.n} {sorted(value.tags)} {value.total}")


def window_row(window: Any) -> tuple[Any, ...]:
    key, start, value = window
    return ("window", key, start, str(value))


def named(row: tuple[Any, ...]) -> dict[str, Any]:
    return dict(zip(FIELDS, row, strict=True))


def windows_job(source: Path, output: Path, *, follow: bool) -> Job:
    """Sessions, windows and a function over the same records."""
    job = Job("windows")
    keyed = (
        job.source(JsonLinesSource(source, follow=follow, chunk_bytes=2_048))
        .event_time(attrgetter("time_ms"), max_delay_ms=DELAY_MS)
        .key_by(attrgetter("k"))
    )
    sessions = keyed.window(Session("8s"), name="sessions").aggregate(stat, both).map(session_row)
    tumbling = keyed.window(Tumbling("7s"), name="tumbling").aggregate(large, add).map(window_row)
    shares = keyed.transform_with_state(Shares, time_mode="event", name="shares")
    for name, rows in (("o1", sessions), ("o2", tumbling), ("o3", shares)):
        sink = FileSink(output / name, format="json", fields=FIELDS)
        rows.map(named).sink(sink, name=name)
    return job


def counts_job(source: Source, output: Path, failing: Path = Path("/nonexistent")) -> Job:
    """The records of each key and seven seconds; its name is that of its only operator."""
    job = Job("counts")
    keyed = (
        job.source(source)
        .map(partial(fail_while, failing), name="failing")
        .event_time(attrgetter("time_ms"), max_delay_ms=DELAY_MS)
        .key_by(attrgetter("k"))
    )
    rows = keyed.window(Tumbling("7s"), name="counts").count().map(window_row)
    rows.map(named).sink(FileSink(output / "o1", format="json", fields=FIELDS), name="o1")
    return job


class LineReader(SplitReader):
    """The complete lines of a file, some of them in each read; the position is their number."""

    def __init__(self, file: Path, position: int, *, follow: bool) -> None:
        self.position = position
        self._file, self._follow = file, follow

    def read(self) -> list[Any] | None:
        lines = self._file.read_text().split("\n")[self.position : -1]
        rows = [Row(**json.loads(line)) for line in lines[: 7 + self.position % 5]]
        self.position += len(rows)
        return rows if rows or self._follow else None


class Lines(Source):
    """A source of one's own: a split for each file of a directory."""

    rediscover_s = 0.1
    resumes_ended_splits = True

    def __init__(self, root: Path, *, follow: bool) -> None:
        self._root, self._follow = root, follow
        if not follow:
            self.rediscover_s = None

    def discover(self) -> list[str]:
        return sorted(file.name for file in self._root.glob("*.jsonl"))

    def open(self, split: str, position: Any) -> LineReader:
        return LineReader(self._root / split, position or 0, follow=self._follow)


def fail_while(file: Path, row: Any) -> Any:
    """Raises as long as a file is there."""
    if file.exists():
        raise ValueError(f"{file} is there")
    return row
