"""What is read from the process and the machine: CPU, wall, memory, disk, network.

Invariants: CPU is user plus system time of all threads of this process, so compaction, sealing
and uploads count too; samples hold totals, so nothing between two of them is lost, and sampling
neither waits for the job nor makes it wait.
"""

import asyncio
import os
import resource
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidelog.effects import SystemClock, loop_thread

if TYPE_CHECKING:
    # Programs of other systems read this module where these cannot be imported.
    from tidelog_bench.experiment import Points
    from tidelog_bench.store.modelled import ModelledStore

CLOCK: Final = SystemClock()
"""The clock of all measurements: seconds that only go forward."""
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_IO: Final = Path("/proc/self/io")
EVERY_S: Final = 0.1
"""Seconds between two samples."""


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
        """This moment."""
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
    """Resident memory of this process in MB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE / 1e6


@dataclass(frozen=True, slots=True)
class Sample:
    """Totals since the process began, or the store was opened."""

    at: float
    """Seconds, on the clock of measurements."""
    cpu_s: float
    """User plus system, all threads."""
    written_bytes: int
    """Given to the file system by all threads: flushes and compactions of the tables."""
    read_bytes: int
    """Taken from it, its cache included."""
    wire_bytes: int
    """Passed the modelled network, up and down."""

    @classmethod
    def now(cls, store: "ModelledStore") -> "Sample":
        """This moment."""
        lines = (line.split(": ") for line in _IO.read_text().splitlines())
        counters = {name: int(value) for name, value in lines}
        return cls(
            at=CLOCK.monotonic(),
            cpu_s=_cpu_s(),
            written_bytes=counters["wchar"],
            read_bytes=counters["rchar"],
            wire_bytes=store.moved_bytes,
        )


@contextmanager
def sampled(store: "ModelledStore", samples: list[Sample]) -> Iterator[None]:
    """Append samples, on a thread of its own: one at once, one at the end, others between them."""

    async def run(taken: list[Sample]) -> None:
        try:
            while True:
                await CLOCK.sleep(EVERY_S)
                taken.append(Sample.now(store))
        finally:
            asyncio.get_running_loop().stop()

    taken = [Sample.now(store)]
    running = asyncio.run_coroutine_threadsafe(run(taken), loop_thread())
    try:
        yield
    finally:
        running.cancel()
        samples += [*taken, Sample.now(store)]


def per_second(
    samples: Sequence[Sample], of: Callable[[Sample], float], step_s: float = 0.0
) -> "Points":
    """How fast a total grew: (seconds since the first sample, rate), each over `step_s` at least.

    The times are the middles of the steps; what is left after the last whole step is left out.
    """
    points: Points = []
    begin = samples[0]
    for sample in samples[1:]:
        seconds = sample.at - begin.at
        if seconds <= 0 or seconds < step_s - EVERY_S / 2:
            continue
        middle = (sample.at + begin.at) / 2 - samples[0].at
        points.append((middle, (of(sample) - of(begin)) / seconds))
        begin = sample
    return points


def mean(samples: Sequence[Sample], of: Callable[[Sample], float]) -> float:
    """How fast a total grew over all samples."""
    first, last = samples[0], samples[-1]
    return (of(last) - of(first)) / (last.at - first.at)
