"""The JSON of `tidelog overhead`: docs/reference/cli-json.md.

Invariant: what is not known is null, and `missing` or `reason` beside it says why.
"""

from collections.abc import Sequence
from typing import Any

from tidelog.cli.estimate.fields import bill_fields, object_fields
from tidelog.cli.output import fields_of
from tidelog.cost.measured.intervals import Interval
from tidelog.cost.measured.report import (
    BytesPerChange,
    Comparison,
    OperatorReport,
    Report,
    SubtaskReport,
    WindowReport,
)
from tidelog.cost.model.bill import Bill
from tidelog.cost.model.formulas import log_peak_bytes


def fields(
    report: Report,
    bills: Sequence[Bill],
    books: Sequence[dict[str, Any]],
    warnings: Sequence[str],
) -> dict[str, Any]:
    """The report with its bills, and the price books they are made with."""
    return {
        **fields_of(report, "usage"),
        "operators": [_operator(each) for each in report.operators],
        "combine": fields_of(report.combine, "job"),
        "space_amplification": report.space_amplification,
        "objects": [] if report.usage is None else object_fields(report.usage),
        "bills": [bill_fields(each) for each in bills],
        "price_books": books,
        "warnings": warnings,
    }


def _operator(operator: OperatorReport) -> dict[str, Any]:
    return {
        **fields_of(operator, "bytes_per_change", "compared", "peak"),
        **_bytes_per_change(operator.bytes_per_change),
        "compared_subtasks": operator.compared,
        **_peak(operator.peak),
        "log_share": operator.log_share,
        "windows": None if operator.windows is None else _windows(operator.windows),
        "subtasks": [_subtask(each) for each in operator.subtasks],
    }


def _windows(windows: WindowReport) -> dict[str, Any]:
    return {
        **fields_of(windows, "peak", "shared"),
        "windows_per_record": windows.windows_per_record,
        "slices_per_record": windows.slices_per_record,
        "bytes_per_record": windows.bytes_per_record,
        **_peak(windows.peak),
    }


def _subtask(subtask: SubtaskReport) -> dict[str, Any]:
    per_change = subtask.bytes_per_change
    return {
        **fields_of(subtask, "bytes_per_change", "peak"),
        **_bytes_per_change(per_change),
        **_peak(subtask.peak),
        "intervals": [
            _interval(each, subtask.changes_per_s, per_change) for each in subtask.intervals
        ],
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
        **fields_of(interval, "who", "end_ms", "peak_bytes", "peak_changes"),
        "start_ms": round(interval.start_ms),
        "seconds": interval.seconds,
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
