"""Two phases of one job: how much it can do, and how late it is with a little less.

As in Luo and Carey, "On Performance Stability in LSM-based Storage Systems", PVLDB 13(4), 2019:
the testing phase takes records as fast as it goes (a closed system), and what it reaches is the
highest throughput; in the running phase records arrive at a share of that, whether or not the job
takes them (an open system).

Invariant: both phases handle every key once before anything counts, so the state has its size.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tidelog.runtime.status.distribution import percentile
from tidelog_bench.embedded.lateness import Handled, Lateness
from tidelog_bench.peers.task import ProgramTask


@dataclass(frozen=True, slots=True, kw_only=True)
class SteadyTask(ProgramTask):
    """The highest number of each key, of numbers from 0 on; times in seconds."""

    keys: int
    """The first numbers have a key each; those after them are spread over all keys at random."""
    memory_mib: int
    materialize_s: float
    """Between uploads of the table, or what the system has in its place."""
    warm_s: float
    """After every key was handled; not counted."""
    testing_s: float
    running_s: float
    share: float
    """Of the highest throughput, at which records arrive in the running phase."""


@dataclass(frozen=True, slots=True)
class Phase:
    """What a system did in one of them."""

    handled: Sequence[Handled]
    fill: int
    """So many of the numbers come first, to give the state its size."""
    checkpoints_s: Sequence[float]
    """Durations of those after the warm-up."""
    peak_mb: float
    start_s: float | None = None
    """When number 0 was due, on the clock of what was handled; None: as `Lateness.of` takes it."""

    def records_per_s(self, warm_s: float) -> float:
        """Throughput after the warm-up; raises ValueError when nothing was handled then."""
        filled_s = [each.moment_s for each in self.handled if each.last >= self.fill]
        begin_s = filled_s[0] + warm_s if filled_s else 0.0
        counted = [each for each in self.handled if each.moment_s >= begin_s]
        if not filled_s or len(counted) < 2:
            raise ValueError(f"nothing was handled later than {warm_s:.0f} s after the fill")
        begin, end = counted[0], counted[-1]
        return (end.last - begin.last) / (end.moment_s - begin.moment_s)


def two_phases(task: SteadyTask, run: Callable[[float | None, float], Phase]) -> dict[str, float]:
    """Figures of both; `run` gets the rate, or None for testing, and the seconds that count."""
    highest = run(None, task.testing_s).records_per_s(task.warm_s)
    rate = highest * task.share
    phase = run(rate, task.running_s)
    late = Lateness.of(phase.handled, rate, phase.fill / rate + task.warm_s, phase.start_s)
    return {
        "records_per_s": highest,
        "arriving_per_s": rate,
        "late_p50_ms": late.p50_ms,
        "late_p99_ms": late.p99_ms,
        "late_p999_ms": late.p999_ms,
        "late_max_ms": late.max_ms,
        "stop_ms": late.stop_ms,
        **_checkpoints(phase.checkpoints_s),
        "peak_mb": round(phase.peak_mb),
    }


def _checkpoints(durations_s: Sequence[float]) -> dict[str, float]:
    if not durations_s:
        return {"checkpoints": 0}
    shares = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    found = {f"checkpoint_{n}_ms": percentile(durations_s, s) * 1e3 for n, s in shares.items()}
    return {"checkpoints": len(durations_s), **found}
