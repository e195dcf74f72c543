"""Distributions of the last few values of a figure.

Invariant: a distribution is a value; it keeps no sample alive.
"""

import math
from collections.abc import Iterable
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
    if not ascending:
        return None
    low, high = ascending[0], ascending[-1]
    return Distribution(low, percentile(ascending, 0.50), percentile(ascending, 0.99), high)


def percentile(values: Iterable[float], share: float) -> float:
    """Nearest rank: the smallest value that at least `share` of all, one or more, do not exceed."""
    ascending = sorted(values)
    return ascending[max(1, math.ceil(share * len(ascending))) - 1]
