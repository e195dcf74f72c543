"""The workload of a job in a store, for an estimate: rates, sizes and settings from its log.

Invariant: what a store does not say is left to the caller's options. The spread of the keys is
chosen so that flushes combine as many updates as in the store.
"""

from dataclasses import dataclass
from typing import Final

from tidelog.changelog.change import CHANGE_OVERHEAD_BYTES, ROW_PREFIX_BYTES
from tidelog.checkpoint.manifest import Checkpoint
from tidelog.cost.measured.report import OverheadReport
from tidelog.cost.model.job import Workload, expected_distinct
from tidelog.errors import ConfigError
from tidelog.state.config import FlushConfig

_KEY_BYTES: Final = 16
_HALVINGS: Final = 20
_MOST_SKEW: Final = 5.0


@dataclass(frozen=True, slots=True)
class Likeness:
    """The workload and settings of a job, as its store shows them."""

    workload: Workload
    parallelism: int
    sources: int
    checkpoint_interval: float


def like(report: OverheadReport, newest: Checkpoint) -> Likeness:
    """The job of a report and its newest checkpoint; raises ConfigError where no rate is known."""
    sources = {operator.id for operator in newest.operators if operator.source_types}
    changes_per_s = raw = stored_bytes = deletes_per_s = table_bytes = 0.0
    parallelism = source_subtasks = 0
    for operator in report.operators:
        if operator.id in sources:
            source_subtasks += len(operator.subtasks)
        elif operator.changes_per_s:
            parallelism = max(parallelism, len(operator.subtasks))
            changes_per_s += operator.changes_per_s
            table_bytes += operator.table_bytes
            if operator.bytes_per_change is not None:
                raw += operator.changes_per_s * operator.bytes_per_change.raw
                stored_bytes += operator.changes_per_s * operator.bytes_per_change.stored
            if operator.windows is not None:
                deletes_per_s += operator.windows.deletes_per_s
    if not changes_per_s or report.checkpoint_s is None:
        raise ConfigError(
            f"--like {report.url}",
            expected="two checkpoints in a row between which keyed state has changed",
            found="none among those that are retained",
            action="let the job run under load with `--retain 100` or so, or say the rates",
        )
    row_bytes = max(1, round(raw / changes_per_s - CHANGE_OVERHEAD_BYTES - ROW_PREFIX_BYTES))
    key_bytes = min(_KEY_BYTES, row_bytes)
    writes_per_s = changes_per_s * max(1.0, report.combine.factor or 1.0)
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
    return Likeness(workload, parallelism, source_subtasks, report.checkpoint_s)


def _skew(keys: int, updates: float, changed: float) -> float:
    """The Zipf exponent with which so many updates change so many rows."""
    low, high = 0.0, _MOST_SKEW
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (
            (middle, high) if expected_distinct(keys, middle, updates) > changed else (low, middle)
        )
    return high if high > 2 * _MOST_SKEW / 2**_HALVINGS else 0.0
