"""Processor time and peak memory of a process with all its descendants, and sizes of directories.

Invariant: a child that has ended and was waited for still counts, as /proc hands its time to the
parent; so a JVM or a worker counts whenever it is asked about.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from tidelog_bench.embedded.meter import CLOCK, Mark, rates

_TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")


def _family() -> dict[int, float]:
    """Processor seconds of this process and each descendant, with those of its ended children."""
    found: dict[int, tuple[int, float]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError):
            # The name before may hold blanks and parentheses.
            fields = (path / "stat").read_text().rpartition(")")[2].split()
            ticks = sum(map(int, fields[11:15]))
            found[int(path.name)] = int(fields[1]), ticks * _TICK_S
    family = {os.getpid()}
    while children := {pid for pid, (parent, _) in found.items() if parent in family} - family:
        family |= children
    return {pid: found[pid][1] for pid in family}


def tree_mark(records: int) -> Mark:
    """This moment, with the processor time of this process and its descendants."""
    cpu = sum(_family().values())
    return Mark(CLOCK.monotonic(), cpu, records)


def tree_peak_mb() -> float:
    """The most that was resident of this process and of each descendant, summed, in MB."""
    total = 0
    for pid in _family():
        with suppress(FileNotFoundError, ProcessLookupError):
            # A process that has just ended has no memory any more.
            _, _, peak = Path(f"/proc/{pid}/status").read_text().partition("VmHWM:")
            total += int(peak.split(maxsplit=1)[0]) if peak else 0
    return total * 1024 / 1e6


def size_mb(directory: Path) -> float:
    """What all files below a directory hold, in MB; a name that goes meanwhile counts nothing."""
    total = 0
    for path in directory.rglob("*"):
        with suppress(FileNotFoundError):
            total += path.stat().st_size if path.is_file() else 0
    return round(total / 1e6, 3)


def figures(start: Mark, end: Mark, commits: int, durable: Path) -> dict[str, float]:
    """Throughput, cost, commits between two moments; peak memory and durable bytes."""
    return {
        **rates(start, end),
        "commits": commits,
        "durable_mb": size_mb(durable),
        "peak_mb": round(tree_peak_mb()),
    }


def between(moments: Sequence[float], start: Mark, end: Mark) -> int:
    """How many moments of the clock fall into the measured time."""
    return sum(start.wall <= moment <= end.wall for moment in moments)
