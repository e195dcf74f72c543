"""Distributions of the last few values of a figure.

Invariant: a distribution is a value; it keeps no sample alive.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Distribution:
    """Smallest, middle, 99th percentile (nearest rank) and largest of some values."""

    min: float
    median: float
    p99: float
    max: float


def distribution(values: Iterable[float]) -> Distribution | None:
    """How values are distributed; None without any."""
    ascending = sorted(values)
    median, p99 = percentile(ascending, 0.50), percentile(ascending, 0.99)
    if median is None or p99 is None:
        return None
    return Distribution(ascending[0], median, p99, ascending[-1])


def percentile(ascending: Sequence[float], share: float) -> float | None:
    """The smallest value that at least `share` of all are at or below (nearest rank)."""
    if not ascending:
        return None
    rank = max(1, -int(-share * len(ascending) // 1))
    return ascending[rank - 1]
