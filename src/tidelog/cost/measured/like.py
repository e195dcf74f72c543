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
    keyed = [each for each in report.operators if each.id not in sources and each.changes_per_s]
    changes_per_s = sum(each.changes_per_s or 0.0 for each in keyed)
    if not changes_per_s or report.checkpoint_s is None:
        raise ConfigError(
            f"--like {report.url}",
            expected="two checkpoints in a row between which keyed state has changed",
            found="none among those that are retained",
            action="let the job run under load with `--retain 100` or so, or say the rates",
        )
    weighed = [(e.changes_per_s or 0.0, e.bytes_per_change) for e in keyed]
    raw = sum(rate * of.raw for rate, of in weighed if of is not None) / changes_per_s
    stored = sum(rate * of.stored for rate, of in weighed if of is not None) / changes_per_s
    row_bytes = max(1, round(raw - CHANGE_OVERHEAD_BYTES - ROW_PREFIX_BYTES))
    key_bytes = min(_KEY_BYTES, row_bytes)
    writes_per_s = changes_per_s * max(1.0, report.combine.factor or 1.0)
    deletes_per_s = sum(each.windows.deletes_per_s for each in keyed if each.windows is not None)
    table_bytes = sum(each.table_bytes for each in keyed)
    keys = max(1, round(table_bytes / (row_bytes + ROW_PREFIX_BYTES)))
    flush_s = min(report.checkpoint_s, FlushConfig().max_age)
    workload = Workload(
        writes_per_s,
        keys,
        key_bytes=key_bytes,
        value_bytes=row_bytes - key_bytes,
        skew=_skew(keys, writes_per_s * flush_s, changes_per_s * flush_s),
        compression=min(1.0, stored / raw),
        state_bytes=max(1, round(table_bytes)),
        once_per_s=min(writes_per_s, 2 * deletes_per_s),
    )
    return Likeness(
        workload,
        parallelism=max(len(each.subtasks) for each in keyed),
        sources=sum(len(each.subtasks) for each in report.operators if each.id in sources),
        checkpoint_interval=report.checkpoint_s,
        materialize_interval=_interval(keyed),
    )


def _interval(keyed: Sequence[OperatorReport]) -> float | None:
    intervals = [each.interval_s for each in keyed if each.interval_s is not None]
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
