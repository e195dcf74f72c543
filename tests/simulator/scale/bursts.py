"""Materializations over time, on the real schedule: the peak of uploads against their mean.

Invariant: the two variants upload the same bytes in the same time; only their moments differ.
"""

from dataclasses import dataclass

from tests.simulator.scale.shape import Shape
from tidelog.materialize.schedule import first_due, next_due


@dataclass(frozen=True, slots=True)
class Burst:
    """Uploads of one interval; bytes per second of the whole job."""

    variant: str
    mean: float
    peak: float
    """The largest second."""
    busy: float
    """Share of the seconds in which something is uploaded."""


def bursts(shape: Shape) -> list[Burst]:
    """All subtasks at once, and each at its own phase."""
    at_once = [0.0] * shape.total
    staggered = [_second_due(rank, shape) for rank in range(shape.total)]
    return [_burst("at once", at_once, shape), _burst("staggered", staggered, shape)]


def _second_due(rank: int, shape: Shape) -> float:
    """When a subtask is due in the second interval, counted from its beginning."""
    interval = shape.materialize_interval
    due = first_due(rank, shape.total, interval, 0.0)
    return next_due(due, interval, due) - interval - interval / shape.total


def _burst(variant: str, starts: list[float], shape: Shape) -> Burst:
    """Each process uploads one table after the other, in the order in which they are due."""
    seconds = max(1, int(shape.materialize_interval))
    uploaded = [0.0] * seconds
    for process in range(shape.processes):
        free_at = 0.0
        for start in sorted(starts[process :: shape.processes]):
            begin = max(start, free_at)
            free_at = begin + shape.latency + shape.table_bytes / shape.bandwidth
            _spread(uploaded, begin + shape.latency, free_at, shape.table_bytes)
    busy = sum(1 for size in uploaded if size > 0) / seconds
    return Burst(variant, sum(uploaded) / seconds, max(uploaded), busy)


def _spread(uploaded: list[float], begin: float, end: float, size: float) -> None:
    """Account for a transfer second by second; what lies behind the interval starts it anew."""
    at = begin
    while at < end - 1e-9:
        until = min(end, float(int(at) + 1))
        uploaded[int(at) % len(uploaded)] += size * (until - at) / (end - begin)
        at = until
