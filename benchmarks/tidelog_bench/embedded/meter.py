"""What is read from the process, its descendants and the machine: CPU, wall, memory, disk.

Invariants: CPU is user plus system time of all threads, so compaction, sealing and uploads count
too. In a tree of processes a child that has ended and was waited for still counts, as /proc hands
its time to the parent; so a JVM or a worker counts whenever it is asked about.
"""

import os
import resource
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidelog.effects import SystemClock

CLOCK: Final = SystemClock()
"""The clock of all measurements: seconds that only go forward."""
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Mark:
    """A moment of a run; seconds and records."""

    wall: float
    cpu: float
    records: int

    @classmethod
    def now(cls, records: int) -> "Mark":
        """With the processor time of this process."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return cls(CLOCK.monotonic(), usage.ru_utime + usage.ru_stime, records)


def rates(start: Mark, end: Mark) -> dict[str, float]:
    """Throughput and cost per record between two moments; without records there is no such cost."""
    records = end.records - start.records
    wall, cpu = end.wall - start.wall, end.cpu - start.cpu
    cost = {"cpu_us_per_record": round(cpu / records * 1e6, 3)} if records else {}
    return {
        "records": records,
        "seconds": round(wall, 3),
        "records_per_s": round(records / wall),
        **cost,
        "cores_used": round(cpu / wall, 2),
    }


def between(moments: Sequence[float], start: Mark, end: Mark) -> int:
    """How many moments of the clock fall into the measured time."""
    return sum(start.wall <= moment <= end.wall for moment in moments)


def rss_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE / 1e6


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


def anonymous_mb() -> float:
    """What is resident of this process and of no file: tables that are mapped do not count."""
    _, _, anonymous = Path("/proc/self/status").read_text().partition("RssAnon:")
    return int(anonymous.split(maxsplit=1)[0]) * 1024 / 1e6
