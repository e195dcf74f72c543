"""A job in a store as an estimate takes it: rates, sizes and settings from what it has logged.

Invariant: what a store does not say is left to the caller's options: how keys are spread is chosen
so that flushes combine as many updates as they did.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final

from tidelog.changelog.change import CHANGE_OVERHEAD_BYTES, ROW_PREFIX_BYTES
from tidelog.checkpoint.manifest import Checkpoint
from tidelog.cost.measured.report import OperatorReport, OverheadReport
from tidelog.cost.model.job import Workload, expected_distinct
from tidelog.errors import ConfigError
from tidelog.state.config import FlushConfig

_KEY_BYTES: Final = 16
_HALVINGS: Final = 20
_MOST_SKEW: Final = 5.0


@dataclass(frozen=True, slots=True)
class Likeness:
    """What a store says of its job."""

    workload: Workload
    parallelism: int
    sources: int
    checkpoint_interval: float
    materialize_interval: float | None
    """None: no interval was seen."""


def like(report: OverheadReport, newest: Checkpoint) -> Likeness:
    """The job of a report whose newest checkpoint this is; raises ConfigError where the retained
    checkpoints tell no rate.
    """
    sources = {operator.id for operator in newest.operators if operator.source_types}
    keyed = [
        operator
        for operator in report.operators
        if operator.id not in sources and operator.changes_per_s
    ]
    changes_per_s = sum(operator.changes_per_s or 0.0 for operator in keyed)
    if not changes_per_s or report.checkpoint_s is None:
        raise ConfigError(
            f"--like {report.url}",
            expected="two checkpoints in a row between which keyed state has changed",
            found="none among those that are retained",
            action="let the job run under load with `--retain 100` or so, or say the rates",
        )
    weighed = [
        (operator.changes_per_s or 0.0, operator.bytes_per_change)
        for operator in keyed
        if operator.bytes_per_change is not None
    ]
    raw = sum(rate * size.raw for rate, size in weighed) / changes_per_s
    stored_bytes = sum(rate * size.stored for rate, size in weighed) / changes_per_s
    row_bytes = max(1, round(raw - CHANGE_OVERHEAD_BYTES - ROW_PREFIX_BYTES))
    key_bytes = min(_KEY_BYTES, row_bytes)
    writes_per_s = changes_per_s * max(1.0, report.combine.factor or 1.0)
    deletes_per_s = sum(
        operator.windows.deletes_per_s for operator in keyed if operator.windows is not None
    )
    table_bytes = sum(operator.table_bytes for operator in keyed)
    keys = max(1, round(table_bytes / (row_bytes + ROW_PREFIX_BYTES)))
    flush_s = min(report.checkpoint_s, FlushConfig().max_age)
    workload = Workload(
        writes_per_s,
        keys,
        key_bytes=key_bytes,
        value_bytes=row_bytes - key_bytes,
        skew=_skew(keys, writes_per_s * flush_s, changes_per_s * flush_s),
        compression=min(1.0, stored_bytes / raw),
        state_bytes=max(1, round(table_bytes)),
        once_per_s=min(writes_per_s, 2 * deletes_per_s),
    )
    return Likeness(
        workload,
        parallelism=max(len(operator.subtasks) for operator in keyed),
        sources=sum(
            len(operator.subtasks) for operator in report.operators if operator.id in sources
        ),
        checkpoint_interval=report.checkpoint_s,
        materialize_interval=_interval(keyed),
    )


def _interval(keyed: Sequence[OperatorReport]) -> float | None:
    intervals = [operator.interval_s for operator in keyed if operator.interval_s is not None]
    return fmean(intervals) if intervals else None


def _skew(keys: int, updates: float, changed: float) -> float:
    """The Zipf exponent with which so many updates change so many rows."""
    low, high = 0.0, _MOST_SKEW
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (
            (middle, high) if expected_distinct(keys, middle, updates) > changed else (low, middle)
        )
    return high if high > 2 * _MOST_SKEW / 2**_HALVINGS else 0.0
