"""When write buffers are flushed between two checkpoints, and how many rows that logs.

Invariants: the last flush of a cycle is the one at the barrier; the rules are those of
`KeyedBackend.flush_due`: by rows, by bytes, by age, and ahead of a checkpoint unless rows are hot.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from tidelog.changelog.cadence import FLUSH_LEAD_S
from tidelog.cost.model.workload import Workload
from tidelog.state.config import FlushConfig

_HOT: Final = 2
"""Updates per row above which a flush ahead of a checkpoint is left out."""
_STEPS: Final = 60
"""Halvings in the search for the time that fills a buffer."""
_MOMENTS: Final = 8
"""At which a split is looked at."""
_MANY: Final = 10_000
"""Flushes of a cycle that are followed one by one; beyond, they are all alike."""


@dataclass(frozen=True, slots=True)
class Flush:
    """One flush of every subtask at once: `at` seconds into the cycle, after `span` seconds."""

    at: float
    span: float
    rows: float
    """Over all subtasks."""
    times: float = 1.0
    """How many equal flushes this one stands for."""


@lru_cache(maxsize=4_096)
def flushes(
    workload: Workload, subtasks: float, config: FlushConfig, cycle_s: float
) -> tuple[Flush, ...]:
    """The flushes of one cycle of `cycle_s` seconds; rows are those of the whole job."""
    longest = longest_span(workload, subtasks, config)
    lead_at = cycle_s - FLUSH_LEAD_S
    found: list[Flush] = []
    start = 0.0
    if cycle_s / longest > _MANY:
        times = cycle_s // longest - 2
        found.append(Flush(0.0, longest, workload.distinct(longest), times))
        start = times * longest
    while start < cycle_s:
        end = min(start + longest, cycle_s)
        if start < lead_at < end and not _hot(workload, lead_at - start):
            end = lead_at
        found.append(Flush(end, end - start, workload.distinct(end - start)))
        start = end
    return tuple(found)


def longest_span(workload: Workload, subtasks: float, config: FlushConfig) -> float:
    """Seconds after which a buffer is flushed by its rows, its bytes or its age."""
    limit = min(config.rows, config.bytes / workload.raw_change_bytes) * subtasks
    low, high = 0.0, config.max_age
    if workload.distinct(high) <= limit:
        return high
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if workload.distinct(middle) < limit else (low, middle)
    return high


@lru_cache(maxsize=4_096)
def rows_split(workload: Workload, found: tuple[Flush, ...]) -> float:
    """Rows that one more flush at a random moment adds, because it splits another one.

    Each materialization of a table makes such a flush.
    """
    total = sum(flush.span * flush.times for flush in found)
    return sum(
        flush.span * flush.times / total * _split(workload, flush.span, flush.rows)
        for flush in found
    )


def _split(workload: Workload, span: float, rows: float) -> float:
    moments = [(at + 0.5) / _MOMENTS * span for at in range(_MOMENTS)]
    return 2 * sum(map(workload.distinct, moments)) / _MOMENTS - rows


def _hot(workload: Workload, seconds: float) -> bool:
    return workload.writes_per_s * seconds > _HOT * workload.distinct(seconds)
