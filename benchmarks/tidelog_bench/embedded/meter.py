"""What is read from the process and the machine: CPU, wall, memory.

Invariant: CPU is user plus system time of all threads of this process, so compaction, sealing and
uploads count too.
"""

import os
import resource
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidelog.effects import SystemClock

CLOCK: Final = SystemClock()
"""The clock of all measurements: seconds that only go forward."""
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


@dataclass(frozen=True)
class Mark:
    """A moment of a run; seconds and records."""

    wall: float
    cpu: float
    records: int

    @classmethod
    def now(cls, records: int) -> "Mark":
        return cls(CLOCK.monotonic(), _cpu_s(), records)


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


def rss_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE / 1e6
