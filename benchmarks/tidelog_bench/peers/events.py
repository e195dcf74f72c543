"""Rows with event times for a session window and an interval join, and their right results.

Invariants: the same seed gives the same files; a run whose results differ in number or checksum
from those of a plain computation raises, so it has no figures.
"""

import collections
import json
import random
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tidelog.errors import TidelogError
from tidelog_bench.embedded.meter import Mark, rates, size_mb, tree_peak_mb
from tidelog_bench.peers.task import DO_NOT_USE, ProgramTask

JITTER_MS: Final = 300
DELAY_MS: Final = 500
"""Watermarks are so far behind, so no row is late."""
SESSION: Final = ("key", "start", "end", "value")
JOIN: Final = ("key", "left_ms", "left_value", "right_ms", "right_value")
_BEGIN_MS: Final = 1_700_000_000_000
Row = tuple[str, int, int]
"""Key, time in milliseconds, value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTask(ProgramTask):
    """A job over bounded files of rows."""

    job: str
    """`session` or `join`."""
    rows: int
    keys: int
    rows_per_event_s: int
    within_ms: int
    """The gap of a session, or how much later than the left row the right one may be."""

    @property
    def results(self) -> Path:
        """A directory of files with a result per line, as JSON with the names of `fields`."""
        return self.path / "results"

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of a result's values."""
        return SESSION if self.job == "session" else JOIN

    @property
    def sides(self) -> tuple[str, ...]:
        """The names of the inputs."""
        return ("rows",) if self.job == "session" else ("left", "right")

    def side(self, name: str) -> Path:
        """The one file of an input, in a directory of its own."""
        return self.path / name / "rows.jsonl"

    def write(self) -> list[list[Row]]:
        """Write the rows of each input, slightly out of order; what was written."""
        chance = random.Random(self.seed)
        drawn: list[list[Row]] = [[] for _ in self.sides]
        for number in range(self.rows):
            at = _BEGIN_MS + number * 1000 // self.rows_per_event_s
            row = (
                f"key{chance.randrange(self.keys)}",
                at - chance.randrange(JITTER_MS),
                chance.randrange(1000),
            )
            drawn[number % len(drawn)].append(row)
        for name, rows in zip(self.sides, drawn, strict=True):
            self.side(name).parent.mkdir()
            with self.side(name).open("w") as file:
                for key, at, value in rows:
                    file.write(json.dumps({"key": key, "time": at, "value": value}) + "\n")
        return drawn


def expected(task: EventTask, drawn: list[list[Row]]) -> Iterator[tuple[Any, ...]]:
    """The results in any order, from all rows of a key at once."""
    by_key: dict[str, list[list[tuple[int, int]]]] = collections.defaultdict(
        lambda: [[] for _ in drawn]
    )
    for side, rows in enumerate(drawn):
        for key, at, value in rows:
            by_key[key][side].append((at, value))
    for key, sides in by_key.items():
        if task.job == "join":
            left, right = sides
            for a in left:
                yield from ((key, *a, *b) for b in right if 0 <= b[0] - a[0] <= task.within_ms)
        else:
            for session in _sessions(sorted(sides[0]), task.within_ms):
                end = session[-1][0] + task.within_ms
                yield key, session[0][0], end, sum(value for _, value in session)


def _sessions(rows: list[tuple[int, int]], gap: int) -> Iterator[list[tuple[int, int]]]:
    session = rows[:1]
    for row in rows[1:]:
        if row[0] - session[-1][0] > gap:
            yield session
            session = []
        session.append(row)
    yield session


def digest(results: Iterable[tuple[Any, ...]]) -> tuple[int, int]:
    """How many, and the sum of their checksums: the order does not matter."""
    sums = [zlib.crc32(" ".join(map(str, result)).encode()) for result in results]
    return len(sums), sum(sums)


def written(task: EventTask) -> Iterator[tuple[Any, ...]]:
    """The results in the files that a system has published."""
    for path in task.results.rglob("part-*"):
        with path.open() as lines:
            for line in lines:
                result = json.loads(line)
                yield tuple(result[name] for name in task.fields)


def figures(task: EventTask, drawn: list[list[Row]], start: Mark, end: Mark) -> dict[str, float]:
    """The figures of a run; raises TidelogError unless its results are right."""
    measured = rates(start, end)
    peak = round(tree_peak_mb())
    found, right = digest(written(task)), digest(expected(task, drawn))
    if found != right:
        raise TidelogError(
            f"results of {task.variant}",
            expected=f"{right[0]} with checksum {right[1]}",
            found=f"{found[0]} with checksum {found[1]}",
            action=DO_NOT_USE,
        )
    return {
        "rows_per_s": measured["records_per_s"],
        "cpu_us_per_row": measured["cpu_us_per_record"],
        "seconds": measured["seconds"],
        "cores_used": measured["cores_used"],
        "results": found[0],
        "durable_mb": size_mb(task.durable),
        "peak_mb": peak,
    }
