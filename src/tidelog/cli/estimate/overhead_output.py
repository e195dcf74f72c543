"""What `tidelog overhead` says: JSON (docs/reference/cli-json.md), and from it text for people.

Invariant: what is not known is null, and `missing` or `reason` with it says why.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from tidelog.cli.estimate.prices import Column, object_fields, show_table
from tidelog.cli.output import Output, fields_of
from tidelog.cli.values import amount, short, size, span
from tidelog.cost.measured.intervals import Interval
from tidelog.cost.measured.report import (
    BytesPerChange,
    Comparison,
    OperatorReport,
    OverheadReport,
    SubtaskReport,
    WindowReport,
)
from tidelog.cost.model.formulas import log_peak_bytes

Fields = dict[str, Any]


def report_fields(report: OverheadReport, bills: Sequence[Fields]) -> Fields:
    """The report with its bills, as JSON."""
    return {
        **fields_of(report, "usage"),
        "operators": [_operator(each) for each in report.operators],
        "combine": fields_of(report.combine),
        "space_amplification": report.space_amplification,
        "objects": [] if report.usage is None else object_fields(report.usage),
        "bills": bills,
    }


def _operator(operator: OperatorReport) -> Fields:
    return {
        **fields_of(operator, "bytes_per_change", "compared", "peak"),
        **_bytes_per_change(operator.bytes_per_change),
        "compared_subtasks": operator.compared,
        **_peak(operator.peak),
        "log_share": operator.log_share,
        "windows": _windows(operator.windows),
        "subtasks": [_subtask(each) for each in operator.subtasks],
    }


def _windows(windows: WindowReport | None) -> Fields | None:
    return None if windows is None else {**fields_of(windows, "peak"), **_peak(windows.peak)}


def _subtask(subtask: SubtaskReport) -> Fields:
    return {
        **fields_of(subtask, "bytes_per_change", "peak"),
        **_bytes_per_change(subtask.bytes_per_change),
        **_peak(subtask.peak),
        "intervals": [_interval(each, subtask) for each in subtask.intervals],
    }


def _interval(interval: Interval, subtask: SubtaskReport) -> Fields:
    per_s, per_change, peak = subtask.changes_per_s, subtask.bytes_per_change, None
    if per_s is not None and per_change is not None:
        predicted = log_peak_bytes(per_s, per_change.stored, interval.seconds)
        peak = Comparison(predicted, interval.peak_bytes)
    return {
        **fields_of(interval, "who", "end_ms", "peak_bytes", "peak_changes"),
        "start_ms": round(interval.start_ms),
        "seconds": interval.seconds,
        **_peak(peak),
    }


def _bytes_per_change(found: BytesPerChange | None) -> Fields:
    return {
        "raw_bytes_per_change": None if found is None else found.raw,
        "stored_bytes_per_change": None if found is None else found.stored,
    }


def _peak(peak: Comparison | None) -> Fields:
    return {
        "predicted_peak_bytes": None if peak is None else peak.predicted_bytes,
        "measured_peak_bytes": None if peak is None else peak.measured_bytes,
        "ratio": None if peak is None else peak.ratio,
    }


def show_report(output: Output, report: Fields) -> None:
    """Print the report with its bills."""
    every = report["checkpoint_s"]
    output.line(
        f"{report['job']}: {report['checkpoints']} checkpoints, slots {report['first_slot']} to "
        f"{report['last_slot']}, {span(report['seconds'])}"
        f"{'' if every is None else f', one every {span(every)}'}; read by the "
        f"{report['engine']} engine"
    )
    output.line()
    show_table(output, _OPERATORS, report["operators"], none=None)
    for operator in report["operators"]:
        if operator["windows"] is not None:
            _show_windows(output, operator["id"], operator["windows"])
    _show_reasons(output, report["operators"])
    _show_store(output, report)
    if report["bills"]:
        output.line()
        requests = [
            {**bill, "requests": sum(bill[kind] for kind in ("put", "list", "get", "delete"))}
            for bill in report["bills"]
        ]
        show_table(output, _BILLS, requests)


def _size(count: float) -> str:
    return size(round(count))


def _ratio(ratio: float) -> str:
    return f"{ratio:.2f}"


_OPERATORS: Final[Sequence[Column]] = (
    ("operator", "id", str),
    ("changes/s", "changes_per_s", short),
    ("raw B", "raw_bytes_per_change", short),
    ("stored B", "stored_bytes_per_change", short),
    ("materialized", "interval_s", lambda seconds: f"every {span(seconds)}"),
    ("peak predicted", "predicted_peak_bytes", _size),
    ("measured", "measured_peak_bytes", _size),
    ("ratio", "ratio", _ratio),
    ("log, mean", "log_bytes", _size),
    ("log / table", "log_share", _ratio),
)
_BILLS: Final[Sequence[Column]] = (
    ("log a month", "provider", str),
    ("currency", "currency", str),
    *((name, name, amount) for name in ("storage", "requests", "transfer", "total")),
)


def _show_windows(output: Output, operator: str, windows: Fields) -> None:
    output.line()
    output.line(
        f"{operator}: 2 x (slices + timers) x bytes x interval = "
        f"{_size(windows['predicted_peak_bytes'])}, measured "
        f"{_size(windows['measured_peak_bytes'])}, ratio {_ratio(windows['ratio'])}; "
        f"{short(windows['deletes_per_s'])} rows/s go, written "
        f"{windows['writes_per_row']:.2f} times before (the rule supposes 1)"
    )


def _show_reasons(output: Output, operators: Sequence[Fields]) -> None:
    reasons: dict[str, list[str]] = defaultdict(list)
    for operator in operators:
        compared = operator["compared_subtasks"]
        if operator["missing"]:
            reasons[operator["missing"]].append(operator["id"])
        if 0 < compared < len(operator["subtasks"]):
            partly = f"{compared} of {len(operator['subtasks'])} subtasks compared"
            reasons[partly].append(operator["id"])
    for reason, names in reasons.items():
        output.line()
        output.line(f"{', '.join(names)}: {reason}")


def _show_store(output: Output, report: Fields) -> None:
    output.line()
    combine, amplification = report["combine"], report["space_amplification"]
    output.line(
        f"combine factor: unknown: {combine['reason']}"
        if combine["factor"] is None
        else f"combine factor: {combine['factor']:.2f} updates per logged change"
    )
    stored = "unknown, as no table is stored" if amplification is None else _ratio(amplification)
    output.line(
        f"space amplification: {stored}; {size(report['stored_bytes'])} stored in all, "
        f"{size(report['table_bytes'])} in the tables of the newest checkpoint"
    )
    for flow in report["objects"]:
        output.line(
            f"{flow['kind']}s: {short(flow['per_day'])} a day of {_size(flow['bytes'])}, "
            f"{span(flow['life_s'])} each, {_size(flow['stored_bytes'])} stored"
        )
