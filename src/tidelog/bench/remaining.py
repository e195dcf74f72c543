"""How long a session still takes, from what trials have taken so far.

Invariant: an estimate uses the nearest thing that was seen: the same cell and variant, else the
same measurement's ratio of taken to expected, else that of the whole session.
"""

import statistics
from collections.abc import Iterable

from tidelog.bench.plan import Step

_OVERHEAD_S = 1.0
"""Start and end of a process, which no cell's guess contains."""


class Remaining:
    """Learns from trials that ended; seconds."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str, str], float] = {}
        self._factors: dict[str, list[float]] = {}

    def learn(self, step: Step, taken_s: float) -> None:
        """Note how long a trial took."""
        self._seen[_key(step)] = taken_s
        factor = taken_s / (step.cell.expected_s + _OVERHEAD_S)
        self._factors.setdefault(step.measurement.name, []).append(factor)

    def of(self, step: Step) -> float:
        """How long a trial will take."""
        seen = self._seen.get(_key(step))
        if seen is not None:
            return seen
        return (step.cell.expected_s + _OVERHEAD_S) * self._factor(step.measurement.name)

    def total(self, steps: Iterable[Step]) -> float:
        """How long all of these will take."""
        return sum(map(self.of, steps))

    def _factor(self, measurement: str) -> float:
        of_all = [factor for factors in self._factors.values() for factor in factors]
        factors = self._factors.get(measurement, of_all)
        return statistics.median(factors) if factors else 1.0


def _key(step: Step) -> tuple[str, str, str]:
    return step.measurement.name, step.cell.key, step.variant
