"""What a program is asked to do, which crosses process borders as JSON, and whether a system was
right: its counts of words, or its sessions and joined rows, against those of a plain computation.

Invariants: all programs of a pair get the same input, and the same seconds of warm-up and measure;
a run that was not right raises, so it has no figures. Counts are what a system restored from what
it had made durable, never what it still had in memory, so figures stand only where a recovery
works; where it takes a second start of a system, once for all pairs of a session.
"""

import collections
import json
import random
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, cycle, islice
from pathlib import Path
from typing import Any, Final

from tidelog.errors import TidelogError
from tidelog_bench.embedded.meter import Mark, rates, size_mb, tree_peak_mb
from tidelog_bench.embedded.words import Stages, Words, draw

JITTER_MS: Final = 300
DELAY_MS: Final = 500
"""Watermarks are so far behind, so no row is late."""
SESSION: Final = ("key", "start", "end", "value")
JOIN: Final = ("key", "left_ms", "left_value", "right_ms", "right_value")
_BEGIN_MS: Final = 1_700_000_000_000
Row = tuple[str, int, int]
"""Key, time in milliseconds, value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramTask:
    variant: str
    """The system to run; a program may serve several."""
    checkpoint_s: float
    seed: int
    directory: str
    """For all that the program writes; its `durable` is what a restart reads."""

    @property
    def path(self) -> Path:
        return Path(self.directory)

    @property
    def durable(self) -> Path:
        """Where the system keeps what survives the process."""
        return self.path / "durable"

    def usage(self, start: Mark, end: Mark) -> dict[str, float]:
        """Throughput and cost between two moments; durable bytes and peak memory."""
        durable_mb, peak_mb = size_mb(self.durable), round(tree_peak_mb())
        return {**rates(start, end), "durable_mb": durable_mb, "peak_mb": peak_mb}

    def refuse(self, what: str, expected: str, found: str) -> TidelogError:
        return TidelogError(
            f"{what} of {self.variant}",
            expected=expected,
            found=found,
            action="do not use figures of this system before its program or the system is repaired",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Task(ProgramTask):
    """A word count to be measured; times in seconds."""

    keys: int
    key_bytes: int
    draws: int
    warm_s: float
    seconds: float
    batch_words: int
    """Words per file, where words come from files; Spark's batch is one file."""
    restarts: bool = True
    """Whether a system whose counts can only be read by starting it again is checked."""

    def words(self) -> Words:
        return draw(self.keys, self.key_bytes, self.draws, self.seed)

    def stages(self, words: Words) -> Stages:
        """Fill, warm-up, measurement: for a system whose source is a Python function."""
        return Stages(words, warm_s=self.warm_s, seconds=self.seconds)

    def figures(self, start: Mark, end: Mark, commits: int) -> dict[str, float]:
        return self.usage(start, end) | {"commits": commits}

    def check(self, found: Mapping[str, int], words: Words, position: int) -> None:
        """Raise TidelogError unless the counts that were restored are those of the first `position`
        words: of the fill, then of the stream as often round as it took.
        """
        right = collections.Counter(islice(chain(words.fill, cycle(words.stream)), position))
        if found == right:
            return
        wrong = [word for word in right.keys() | found.keys() if found.get(word) != right.get(word)]
        word = min(wrong)
        raise self.refuse(
            "restored counts",
            f"{len(right)} words, {right.get(word)} times {word[:24]}",
            f"{len(found)} words, {found.get(word)} times {word[:24]}, {len(wrong)} differ",
        )


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
        return SESSION if self.job == "session" else JOIN

    @property
    def sides(self) -> tuple[str, ...]:
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
    usage = task.usage(start, end)
    found, right = digest(written(task)), digest(expected(task, drawn))
    if found != right:
        sums = [f"{count} with checksum {checksum}" for count, checksum in (right, found)]
        raise task.refuse("results", *sums)
    names = ("seconds", "cores_used", "durable_mb", "peak_mb")
    return {
        "rows_per_s": usage["records_per_s"],
        "cpu_us_per_row": usage["cpu_us_per_record"],
        "results": found[0],
        **{name: usage[name] for name in names},
    }
