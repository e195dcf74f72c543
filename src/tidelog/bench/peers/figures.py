"""The figures that every system gives, from the same moments in the same units."""

from collections.abc import Sequence
from pathlib import Path

from tidelog.bench.embedded.meter import Mark, rates
from tidelog.bench.peers.usage import size_mb, tree_rss_mb


def figures(start: Mark, end: Mark, commits: int, durable: Path) -> dict[str, float]:
    """Throughput, cost, commits between two moments; memory and durable bytes now."""
    return {
        **rates(start, end),
        "commits": commits,
        "durable_mb": size_mb(durable),
        "rss_mb": round(tree_rss_mb()),
    }


def between(moments: Sequence[float], start: Mark, end: Mark) -> int:
    """How many moments of the clock fall into the measured time."""
    return sum(start.wall <= moment <= end.wall for moment in moments)
