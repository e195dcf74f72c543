"""The status of a job in several processes, from what each of them says.

Invariant: every figure is merged as its declaration says (`across`), so a new one needs nothing
here.
"""

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, Final

from tidelog.metrics import METRIC, Metric
from tidelog.runtime.status.distribution import Distribution
from tidelog.runtime.status.status import JobStatus, OperatorStatus

_ACROSS: Final[dict[str, Callable[[Sequence[Any]], Any]]] = {"sum": sum, "max": max, "min": min}
_MERGED: Final = ("uploads", "materializations", "state", "store", "local_copies", "memory")


def merged(parent: JobStatus, workers: Sequence[JobStatus]) -> JobStatus:
    """A job's status from that of its own process, which has no subtasks, and of its workers."""
    if not workers:
        return parent
    figures = {
        name: _one([getattr(status, name) for status in (parent, *workers)]) for name in _MERGED
    }
    # The budget is the job's: the workers have parts of it.
    figures["memory"] = replace(figures["memory"], budget_bytes=parent.memory.budget_bytes)
    restored = _one([status.restore for status in workers])
    reports = [(worker, status.at_s) for status in workers for worker in status.workers]
    ids = dict.fromkeys(operator.id for status in workers for operator in status.operators)
    operators = (
        _operator([o for status in workers for o in status.operators if o.id == id]) for id in ids
    )
    return replace(
        parent,
        operators=tuple(operators),
        workers=tuple(replace(w, silent_s=parent.at_s - at_s) for w, at_s in reports),
        restore=restored or parent.restore,
        **figures,
    )


def _operator(shares: Sequence[OperatorStatus]) -> OperatorStatus:
    tasks = sorted(
        (task for share in shares for task in share.tasks), key=lambda task: task.subtask
    )
    # Event time does not wait for a worker all of whose subtasks are idle.
    active = [share for share in shares if share.idle_subtasks < share.parallelism] or shares
    marks = [share.watermark_ms for share in active]
    operator: OperatorStatus = _one([replace(share, tasks=()) for share in shares])
    return replace(
        operator,
        parallelism=len(tasks),
        watermark_ms=None if None in marks else min(mark for mark in marks if mark is not None),
        tasks=tuple(tasks),
    )


def _one(parts: Sequence[Any]) -> Any:
    """One part of a status, or one figure without a declaration, for those of all processes."""
    there = [part for part in parts if part is not None]
    if len(there) <= 1:
        return there[0] if there else None
    if isinstance(there[0], Distribution):
        low = min(part.min for part in there)
        return Distribution(
            low, *(max(getattr(part, name) for part in there) for name in ("median", "p99", "max"))
        )
    if not is_dataclass(there[0]):
        return there[-1]
    values = {
        field.name: _figure(field.metadata.get(METRIC), [getattr(e, field.name) for e in there])
        for field in fields(there[0])
        if field.init
    }
    return replace(there[0], **values)  # type: ignore[type-var]


def _figure(metric: Metric | None, values: Sequence[Any]) -> Any:
    figures = [value for value in values if value is not None]
    if metric is None or not figures or not isinstance(figures[0], int | float):
        return _one(values)
    return _ACROSS[metric.across](figures)
