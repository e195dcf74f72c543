"""The JSON of `tidelog overhead`: docs/cli-json.md.

Invariant: what is not known is null, and `missing` or `reason` beside it says why.
"""

from collections.abc import Sequence
from typing import Any

from tidelog.cli.estimate_fields import bill_fields
from tidelog.estimate.bill import Bill
from tidelog.estimate.formulas import log_peak_bytes
from tidelog.estimate.usage import DAY_S, Usage
from tidelog.overhead.intervals import Interval
from tidelog.overhead.report import (
    BytesPerChange,
    Comparison,
    OperatorReport,
    Report,
    SubtaskReport,
    WindowReport,
)


def fields(
    report: Report,
    bills: Sequence[Bill],
    books: Sequence[dict[str, Any]],
    warnings: Sequence[str],
) -> dict[str, Any]:
    """The report with its bills, and the price books they are made with."""
    return {
        "url": report.url,
        "job": report.job,
        "engine": report.engine,
        "checkpoints": report.checkpoints,
        "first_slot": report.first_slot,
        "last_slot": report.last_slot,
        "seconds": report.seconds,
        "checkpoint_s": report.checkpoint_s,
        "operators": [_operator(each) for each in report.operators],
        "combine": {"factor": report.combine.factor, "reason": report.combine.reason},
        "stored_bytes": report.stored_bytes,
        "table_bytes": report.table_bytes,
        "space_amplification": report.space_amplification,
        "objects": [] if report.usage is None else _objects(report.usage),
        "bills": [bill_fields(each) for each in bills],
        "price_books": books,
        "notes": report.notes,
        "warnings": warnings,
    }


def _operator(operator: OperatorReport) -> dict[str, Any]:
    return {
        "id": operator.id,
        "changes_per_s": operator.changes_per_s,
        **_bytes_per_change(operator.bytes_per_change),
        "interval_s": operator.interval_s,
        "compared_subtasks": operator.compared,
        **_peak(operator.peak),
        "log_bytes": operator.log_bytes,
        "most_log_bytes": operator.most_log_bytes,
        "table_bytes": operator.table_bytes,
        "log_share": operator.log_share,
        "windows": None if operator.windows is None else _windows(operator.windows),
        "missing": operator.missing,
        "subtasks": [_subtask(each) for each in operator.subtasks],
    }


def _windows(windows: WindowReport) -> dict[str, Any]:
    return {
        "size_ms": windows.size_ms,
        "slide_ms": windows.slide_ms,
        "windows_per_record": windows.windows_per_record,
        "windows_per_s": windows.windows_per_s,
        "timers_per_s": windows.timers_per_s,
        "window_bytes": windows.window_bytes,
        "timer_bytes": windows.timer_bytes,
        "writes_per_window": windows.writes_per_window,
        "bytes_per_record": windows.bytes_per_record,
        **_peak(windows.peak),
        "missing": windows.missing,
    }


def _subtask(subtask: SubtaskReport) -> dict[str, Any]:
    per_change = subtask.bytes_per_change
    return {
        "subtask": subtask.subtask,
        "changes_per_s": subtask.changes_per_s,
        **_bytes_per_change(per_change),
        "interval_s": subtask.interval_s,
        **_peak(subtask.peak),
        "highest_peak_bytes": subtask.highest_peak_bytes,
        "intervals": [
            _interval(each, subtask.changes_per_s, per_change) for each in subtask.intervals
        ],
        "missing": subtask.missing,
    }


def _interval(
    interval: Interval, per_s: float | None, per_change: BytesPerChange | None
) -> dict[str, Any]:
    predicted = (
        log_peak_bytes(per_s, per_change.stored, interval.seconds)
        if per_s is not None and per_change is not None
        else None
    )
    peak = None if predicted is None else Comparison(predicted, interval.peak_bytes)
    return {
        "start_ms": round(interval.start_ms),
        "seconds": interval.seconds,
        "changes": interval.changes,
        "checkpoints": interval.checkpoints,
        "peak_slot": interval.peak_slot,
        **_peak(peak),
    }


def _bytes_per_change(found: BytesPerChange | None) -> dict[str, float | None]:
    return {
        "raw_bytes_per_change": None if found is None else found.raw,
        "stored_bytes_per_change": None if found is None else found.stored,
    }


def _peak(peak: Comparison | None) -> dict[str, float | None]:
    return {
        "predicted_peak_bytes": None if peak is None else peak.predicted_bytes,
        "measured_peak_bytes": None if peak is None else peak.measured_bytes,
        "ratio": None if peak is None else peak.ratio,
    }


def _objects(usage: Usage) -> list[dict[str, Any]]:
    return [
        {
            "kind": flow.kind,
            "per_day": flow.per_s * DAY_S,
            "bytes": flow.bytes,
            "life_s": flow.life_s,
            "stored_bytes": flow.stored_bytes,
        }
        for flow in usage.flows
    ]
