"""What a running job uses, sampled on a thread of its own: processor, disk, network.

Invariants: a sample holds totals, so nothing between two samples is lost, and a rate over several
is exact; sampling neither waits for the job nor makes it wait.
"""

import asyncio
import resource
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidelog.effects import loop_thread
from tidelog_bench.embedded.meter import CLOCK
from tidelog_bench.measurement import Points
from tidelog_bench.store.modelled import ModelledStore

EVERY_S: Final = 0.1
_IO: Final = Path("/proc/self/io")


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
    requests: int

    @classmethod
    def now(cls, store: ModelledStore) -> "Sample":
        """This moment."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        lines = (line.split(": ") for line in _IO.read_text().splitlines())
        counters = {name: int(value) for name, value in lines}
        return cls(
            at=CLOCK.monotonic(),
            cpu_s=usage.ru_utime + usage.ru_stime,
            written_bytes=counters["wchar"],
            read_bytes=counters["rchar"],
            wire_bytes=store.moved_bytes,
            requests=sum(store.requests.values()),
        )


class Sampler:
    """Takes samples from `start` to `stop`; `samples` has them in order."""

    def __init__(self, store: ModelledStore, every_s: float = EVERY_S) -> None:
        self.samples: list[Sample] = []
        self._store = store
        self._every_s = every_s
        self._running: Future[None] | None = None

    def start(self) -> None:
        """Take the first sample, and go on."""
        self.samples.append(Sample.now(self._store))
        self._running = asyncio.run_coroutine_threadsafe(self._run(), loop_thread())

    def stop(self) -> None:
        """Take the last one; a second call does nothing."""
        if self._running is None:
            return
        self._running.cancel()
        self._running = None
        self.samples = [*self.samples, Sample.now(self._store)]

    async def _run(self) -> None:
        try:
            while True:
                await CLOCK.sleep(self._every_s)
                self.samples.append(Sample.now(self._store))
        finally:
            asyncio.get_running_loop().stop()


def per_second(
    samples: Sequence[Sample], of: Callable[[Sample], float], step_s: float = 0.0
) -> Points:
    """How fast a total grew: (seconds since the first sample, rate), each over `step_s` at least.

    The times are the middles of the steps; what is left behind the last whole step is left out.
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
