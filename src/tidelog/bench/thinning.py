"""Curves with few points.

Invariant: what is left out lies between two points that are kept, so no peak and no dip is lost.
"""

from collections.abc import Sequence
from typing import Final

from tidelog.bench.measurement import Points

MOST: Final = 300
"""Points of a series in a record."""


def thinned(points: Sequence[tuple[float, float]], most: int = MOST) -> Points:
    """At most so many points: the lowest and the highest of each stretch, in order."""
    if len(points) <= most:
        return list(points)
    length = -(-len(points) // (most // 2))
    kept: Points = []
    for start in range(0, len(points), length):
        stretch = points[start : start + length]
        low = min(stretch, key=lambda point: point[1])
        high = max(stretch, key=lambda point: point[1])
        kept += sorted({low, high})
    return kept
