"""Jobs over a steady input, which note when each record was handled.

Invariants: a record is, or begins with, its number; a job does the same with and without a rate.
They use only the public API, since `just speed stops --base` runs them with an earlier tidelog.
"""

import atexit
import json
import os
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import tidelog
from tidelog import ForeachSink, Job, JobArguments, RateSource, Stream
from tidelog_bench.embedded.lateness import Handled
from tidelog_bench.embedded.meter import CLOCK

VARIABLE: Final = "TIDELOG_STEADY_LOAD"
"""Names the rate, the seconds and the file for what was handled of a job that a command runs."""
_SPREAD: Final = 2_654_435_761
"""Times this, modulo a number of keys, consecutive numbers are keys all over the range."""
_BEGIN_MS: Final = 1_700_000_000_000


@dataclass(frozen=True, slots=True)
class Load:
    """Numbers from 0 on, at a rate or as fast as they are taken, and when they were handled."""

    rate: float | None
    limit: int | None = None
    handled: list[Handled] = field(default_factory=list)

    @classmethod
    def of_command(cls) -> "Load":
        """The one that the environment describes; what was handled is written at the end."""
        given = json.loads(os.environ[VARIABLE])
        load = cls(given["rate"], int(given["rate"] * given["seconds"]))
        atexit.register(lambda: Path(given["output"]).write_text(json.dumps(load.handled)))
        return load

    def note(self, numbers: list[int]) -> list[Any]:
        """Note that these were handled now; there is nothing to be emitted for it."""
        if numbers:
            self.handled.append(Handled.of(CLOCK.monotonic(), numbers))
        return []

    def note_rows(self, rows: list[Any]) -> list[Any]:
        """The rows, whose numbers come first."""
        self.note([row[0] for row in rows])
        return rows


def latest(load: Load, key_of: Callable[[int], Hashable]) -> Job:
    """The highest number of each key, which is noted once it is in the state."""
    job = Job("latest")
    numbers = job.source(RateSource(load.rate, limit=load.limit)).key_by(key_of)
    updates = numbers.aggregate(lambda number: number, max, emit_updates=True)
    noted = updates.map_batches(lambda pairs: load.note([number for _, number in pairs]))
    noted.sink(_nothing())
    return job


def _timed(job: Job, load: Load, *more: Callable[[int], Any]) -> Stream:
    """Rows of a number, its event time and what `more` make of it, noted before any state."""
    rate = load.rate or 1.0

    def row(number: int) -> tuple[Any, ...]:
        event_ms = _BEGIN_MS + int(number * 1000 / rate)
        return number, event_ms, *(make(number) for make in more)

    rows = job.source(RateSource(load.rate, limit=load.limit, make=row)).map_batches(load.note_rows)
    return rows.event_time(lambda row: row[1])


def _nothing() -> ForeachSink:
    return ForeachSink(lambda record: None)


def keys(arguments: JobArguments) -> Job:
    """Sixteen million short keys, uniform: the state grows until the rows in memory are full."""
    return latest(Load.of_command(), lambda number: f"{number * _SPREAD % 16_000_000:016x}")


def words(arguments: JobArguments) -> Job:
    """Two million keys of 200 bytes, uniform."""
    return latest(Load.of_command(), lambda n: f"{n * _SPREAD % 2_000_000:016x}".rjust(200, "w"))


def hot(arguments: JobArguments) -> Job:
    """Two million keys, of which a few are hot: the eighth power of a uniform share."""
    return latest(Load.of_command(), lambda n: int((n * _SPREAD % 2**32 / 2**32) ** 8 * 2_000_000))


def sliding(arguments: JobArguments) -> Job:
    """A minute of rows of 100 bytes by 20,000 keys, looked at every five seconds of event time."""
    job = Job("sliding")
    rows = _timed(job, Load.of_command(), lambda number: f"x{number:099}")
    counts = rows.key_by(lambda row: row[0] % 20_000).window_records(
        60_000, 5_000, function=lambda key, window, rows: [(key, len(rows))]
    )
    counts.sink(_nothing())
    return job


def sessions(arguments: JobArguments) -> Job:
    """Sessions of 50,000 users, which end after two seconds of event time."""
    job = Job("sessions")
    users = _timed(job, Load.of_command()).key_by(lambda row: row[0] * _SPREAD % 50_000)
    # Not imported above: an earlier tidelog without sessions has the other jobs.
    users.window(tidelog.Session(2_000)).count().sink(_nothing())
    return job
