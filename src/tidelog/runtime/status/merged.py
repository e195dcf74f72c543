"""The status of a job in several processes, from what each of them says.

Invariant: every figure is merged as its declaration says (`across`), so a new one needs nothing
here.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, is_dataclass, replace
from itertools import chain
from operator import attrgetter
from typing import Any, Final

from tidelog.metrics import METRIC, Metric
from tidelog.runtime.status.distribution import Distribution
from tidelog.runtime.status.status import JobStatus, OperatorStatus, WorkerStatus

_ACROSS: Final[dict[str, Callable[[Sequence[Any]], Any]]] = {"sum": sum, "max": max, "min": min}
_MERGED: Final = ("uploads", "materializations", "state", "store", "local_copies", "memory")


def merged(parent: JobStatus, workers: Sequence[JobStatus]) -> JobStatus:
    """A job's status from that of its own process, which has no subtasks, and of its workers."""
    if not workers:
        return parent
    figures = {name: _one(column((parent, *workers), name)) for name in _MERGED}
    # The budget is the job's: the workers have parts of it.
    figures["memory"] = replace(figures["memory"], budget_bytes=parent.memory.budget_bytes)
    reports: list[WorkerStatus] = []
    shares: dict[str, list[OperatorStatus]] = defaultdict(list)
    for status in workers:
        for worker in status.workers:
            reports.append(replace(worker, silent_s=parent.at_s - status.at_s))
        for operator in status.operators:
            shares[operator.id].append(operator)
    return replace(
        parent,
        operators=tuple(map(_operator, shares.values())),
        workers=tuple(reports),
        restore=_one(column(workers, "restore")) or parent.restore,
        **figures,
    )


def column(parts: Iterable[object], name: str) -> list[Any]:
    """One figure of each part; a name with dots is that of a figure within a figure."""
    return list(map(attrgetter(name), parts))


def _operator(shares: Sequence[OperatorStatus]) -> OperatorStatus:
    tasks = sorted(chain.from_iterable(column(shares, "tasks")), key=attrgetter("subtask"))
    # Event time does not wait for a worker all of whose subtasks are idle.
    active = [share for share in shares if share.idle_subtasks < share.parallelism] or shares
    marks = column(active, "watermark_ms")
    operator: OperatorStatus = _one([replace(share, tasks=()) for share in shares])
    return replace(
        operator,
        parallelism=len(tasks),
        watermark_ms=None if None in marks else min(marks),
        tasks=tuple(tasks),
    )


def _one(parts: Sequence[Any]) -> Any:
    """One part of a status, or one figure without a declaration, for those of all processes."""
    present = [part for part in parts if part is not None]
    if len(present) <= 1 or not is_dataclass(present[0]):
        return present[-1] if present else None
    if isinstance(present[0], Distribution):
        return Distribution(
            min(column(present, "min")),
            max(column(present, "median")),
            max(column(present, "p99")),
            max(column(present, "max")),
        )
    values = {}
    for field in fields(present[0]):
        if field.init:
            values[field.name] = _figure(field.metadata.get(METRIC), column(present, field.name))
    return replace(present[0], **values)  # type: ignore[type-var]


def _figure(metric: Metric | None, values: Sequence[Any]) -> Any:
    figures = [value for value in values if value is not None]
    if metric is None or not figures or not isinstance(figures[0], int | float):
        return _one(values)
    return _ACROSS[metric.across](figures)
