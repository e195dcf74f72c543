"""Jobs whose memory is watched: large rows, many windows, and one that goes on for ever."""

import os
from pathlib import Path
from typing import Any

from tidelog import ForeachSink, Job, JobArguments, RateSource, Sliding, Tumbling

ROWS = 6_400
BODY = 16 << 10
_EVERY = 25
"""Rows from one look at the memory to the next."""


def job(arguments: JobArguments) -> Job:
    """Keeps every row, reads each once more, and writes growth of memory in bytes as a line."""
    assert arguments.output is not None
    first = resident_bytes()
    most = 0

    def body(number: int) -> bytes:
        nonlocal most
        if number % _EVERY == 0:
            most = max(most, resident_bytes() - first)
        return os.urandom(BODY)

    def report(_: object) -> None:
        nonlocal most
        most = max(most, resident_bytes() - first)
        Path(str(arguments.output)).write_text(f"{most}\n")

    job = Job("large-rows")
    rows = job.source(RateSource(None, limit=2 * ROWS, make=lambda n: n))
    kept = rows.key_by(lambda n: n % ROWS).aggregate(body, lambda _, new: new)
    kept.flat_map(lambda pair: [pair] if pair[0] % _EVERY == 0 else []).sink(ForeachSink(report))
    return job


WINDOWS = 3_600
OVERLAPPING = 24
"""Records of each side of a join of windows that overlap."""
_LARGE = 1_000


def inner(arguments: JobArguments) -> Job:
    return _overlapping(arguments, "inner")


def outer(arguments: JobArguments) -> Job:
    return _overlapping(arguments, "outer")


def _overlapping(arguments: JobArguments, how: Any) -> Job:
    """Joins records of which each is in thousands of windows with one other; writes growth of
    memory in bytes, and how many pairs there were, as a line.
    """
    assert arguments.output is not None
    first = resident_bytes()
    most = pairs = 0

    def report(pair: tuple[Any, Any]) -> None:
        nonlocal most, pairs
        pairs += None not in pair
        if pairs % (WINDOWS // 3) == 0:
            most = max(most, resident_bytes() - first)
            Path(str(arguments.output)).write_text(f"{most} {pairs}\n")

    job = Job("overlapping")
    left, right = (
        job.source(
            RateSource(None, limit=OVERLAPPING, make=lambda n: (n, os.urandom(_LARGE))), name=name
        )
        .event_time(lambda record: record[0] * 1_000)
        .key_by(lambda record: record[0])
        for name in ("left", "right")
    )
    left.join(right, window=Sliding("1h", "1s"), how=how).sink(ForeachSink(report))
    return job


def resident_bytes() -> int:
    """Resident memory of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith("VmRSS:")]
    return int(line.split()[1]) << 10


PER_S = 15_000
WINDOW_KEYS = 2_000
COUNTED_KEYS = 100_000


def soak() -> Job:
    """Five-second windows, and one count for each of a hundred thousand keys."""
    job = Job("soak")
    numbers = job.source(RateSource(PER_S, make=lambda n: (n % WINDOW_KEYS, n * 1000 // PER_S, n)))
    by_key = numbers.event_time(lambda r: r[1]).key_by(lambda r: r[0])
    by_key.window(Tumbling(5_000)).count().sink(ForeachSink(lambda window: None), name="windows")
    counts = numbers.key_by(lambda r: r[2] % COUNTED_KEYS).count()
    counts.sink(ForeachSink(lambda count: None), name="counts")
    return job
