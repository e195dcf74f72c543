"""A job of large rows that notes how much memory its process takes."""

import os
from pathlib import Path

from tidelog import Callback, Job, JobArguments, Rate

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
    rows = job.source(Rate(None, limit=2 * ROWS, make=lambda n: n))
    kept = rows.key_by(lambda n: n % ROWS).aggregate(body, lambda _, new: new)
    kept.flat_map(lambda pair: [pair] if pair[0] % _EVERY == 0 else []).sink(Callback(report))
    return job


def resident_bytes() -> int:
    """Resident memory of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith("VmRSS:")]
    return int(line.split()[1]) << 10
