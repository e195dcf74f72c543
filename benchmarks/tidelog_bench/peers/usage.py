"""Processor time and peak memory of a process with all its descendants, and sizes of directories.

Invariant: a child that has ended and was waited for still counts, as /proc hands its time to the
parent; so a JVM or a worker counts whenever it is asked about.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidelog_bench.embedded.meter import CLOCK, Mark, rates

_TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Process:
    """One line of /proc: seconds with those of ended children."""

    pid: int
    parent: int
    cpu_s: float


def parse(line: str) -> Process:
    """Read /proc/PID/stat; the name in it may hold blanks and parentheses."""
    head, _, tail = line.rpartition(")")
    fields = tail.split()
    ticks = sum(int(field) for field in fields[11:15])
    return Process(int(head.split(" ", 1)[0]), int(fields[1]), ticks * _TICK_S)


def family(processes: Iterable[Process], root: int) -> list[Process]:
    """The root and all its descendants."""
    children: dict[int, list[Process]] = {}
    found: list[Process] = []
    for process in processes:
        children.setdefault(process.parent, []).append(process)
        if process.pid == root:
            found.append(process)
    for process in found:
        found.extend(children.get(process.pid, ()))
    return found


def running() -> list[Process]:
    """All processes of the machine that can be read now."""
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                found.append(parse((path / "stat").read_text()))
            except (FileNotFoundError, ProcessLookupError):
                continue
    return found


def tree_mark(records: int) -> Mark:
    """This moment, with the processor time of this process and its descendants."""
    cpu = sum(process.cpu_s for process in family(running(), os.getpid()))
    return Mark(CLOCK.monotonic(), cpu, records)


def tree_peak_mb() -> float:
    """The most that was resident of this process and of each descendant, summed, in MB."""
    total = 0
    for process in family(running(), os.getpid()):
        try:
            status = Path(f"/proc/{process.pid}/status").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        # A process that has just ended has no memory any more.
        _, _, peak = status.partition("VmHWM:")
        total += int(peak.split(maxsplit=1)[0]) if peak else 0
    return total * 1024 / 1e6


def size_mb(directory: Path) -> float:
    """What all files below a directory hold, in MB; a name that goes meanwhile counts nothing."""
    total = 0
    for path in directory.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:
            continue
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
