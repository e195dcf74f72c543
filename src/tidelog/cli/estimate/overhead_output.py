"""What `tidelog overhead` prints for people."""

from collections import defaultdict
from collections.abc import Sequence

from tidelog.cli.output import Cell, Output
from tidelog.cli.values import amount, short, size, span
from tidelog.cost.measured.report import OperatorReport, Report, WindowReport
from tidelog.cost.model.bill import Bill
from tidelog.cost.model.usage import DAY_S


def show(output: Output, report: Report, bills: Sequence[Bill]) -> None:
    """Print the report with its bills."""
    every = "" if report.checkpoint_s is None else f", one every {span(report.checkpoint_s)}"
    output.line(
        f"{report.job}: {report.checkpoints} checkpoints, slots {report.first_slot} to "
        f"{report.last_slot}, {span(report.seconds)}{every}; read by the {report.engine} engine"
    )
    output.line()
    _show_operators(output, report)
    _show_windows(output, report)
    _show_reasons(output, report)
    _show_store(output, report)
    _show_bills(output, bills)


def print_notes(output: Output, notes: Sequence[str]) -> None:
    """What else is to be said of what was measured."""
    for note in notes:
        output.line(f"note: {note}")


def _show_operators(output: Output, report: Report) -> None:
    output.table(
        [
            *("operator", "changes/s", "raw B", "stored B", "materialized"),
            *("peak predicted", "measured", "ratio", "log, mean", "log / table"),
        ],
        [_operator_row(operator) for operator in report.operators],
    )


def _operator_row(operator: OperatorReport) -> list[Cell]:
    per_change, peak = operator.bytes_per_change, operator.peak
    return [
        operator.id,
        _short(operator.changes_per_s),
        _short(None if per_change is None else per_change.raw),
        _short(None if per_change is None else per_change.stored),
        None if operator.interval_s is None else f"every {span(operator.interval_s)}",
        None if peak is None else size(round(peak.predicted_bytes)),
        None if peak is None else size(round(peak.measured_bytes)),
        _ratio(None if peak is None else peak.ratio),
        size(round(operator.log_bytes)),
        _ratio(operator.log_share),
    ]


def _show_windows(output: Output, report: Report) -> None:
    for operator in report.operators:
        windows = operator.windows
        if windows is None or windows.peak is None:
            continue
        output.line()
        output.line(f"{operator.id}: {_windows(windows)}")
        output.line(
            "  2 x (slices + timers) x bytes x interval = "
            f"{size(round(windows.peak.predicted_bytes))}, measured "
            f"{size(round(windows.peak.measured_bytes))}, ratio {_ratio(windows.peak.ratio)}"
        )
        output.line(f"  {_writes(windows)}")


def _windows(windows: WindowReport) -> str:
    per_record = windows.windows_per_record
    spans = (
        "windows of unknown size"
        if windows.size_ms is None or windows.slide_ms is None or per_record is None
        else f"windows of {span(windows.size_ms / 1000)}, one every "
        f"{span(windows.slide_ms / 1000)}, {per_record:g} per record"
    )
    return (
        f"{spans}; {_short(windows.slices_per_s)} slices/s of {_short(windows.slice_bytes)} B, "
        f"{_short(windows.timers_per_s)} timers/s of {_short(windows.timer_bytes)} B"
    )


def _writes(windows: WindowReport) -> str:
    per_record = windows.bytes_per_record
    record = "" if per_record is None else f"; a record that opens all of its: {per_record:.0f} B"
    return (
        f"a slice is written {windows.writes_per_slice or 0:.2f} times before it goes (the rule "
        f"supposes 1){record}"
    )


def _show_reasons(output: Output, report: Report) -> None:
    operators: dict[str, list[str]] = defaultdict(list)
    for operator in report.operators:
        if operator.missing is not None:
            operators[operator.missing].append(operator.id)
        elif operator.windows is not None and operator.windows.missing is not None:
            operators[operator.windows.missing].append(operator.id)
        if 0 < operator.compared < len(operator.subtasks):
            partly = f"{operator.compared} of {len(operator.subtasks)} subtasks compared"
            operators[partly].append(operator.id)
    for reason, names in operators.items():
        output.line()
        output.line(f"{', '.join(names)}: {reason}")


def _show_store(output: Output, report: Report) -> None:
    output.line()
    combine = report.combine
    output.line(
        f"combine factor: unknown: {combine.reason}"
        if combine.factor is None
        else f"combine factor: {combine.factor:.2f} updates per logged change"
    )
    amplification = _ratio(report.space_amplification) or "unknown, as no table is stored"
    output.line(
        f"space amplification: {amplification}; {size(report.stored_bytes)} stored in all, "
        f"{size(report.table_bytes)} in the tables of the newest checkpoint"
    )
    if report.usage is None:
        return
    for flow in report.usage.flows:
        output.line(
            f"{flow.kind}s: {short(flow.per_s * DAY_S)} a day of {size(round(flow.bytes))}, "
            f"{span(flow.life_s)} each, {size(round(flow.stored_bytes))} stored"
        )


def _show_bills(output: Output, bills: Sequence[Bill]) -> None:
    if not bills:
        return
    output.line()
    output.table(
        ["log a month", "currency", "storage", "requests", "transfer", "total"],
        [
            [
                bill.provider,
                bill.currency,
                amount(bill.storage),
                amount(bill.put + bill.list + bill.get + bill.delete),
                amount(bill.transfer),
                amount(bill.total),
            ]
            for bill in bills
        ],
    )


def _short(number: float | None) -> str | None:
    return None if number is None else short(number)


def _ratio(ratio: float | None) -> str | None:
    return None if ratio is None else f"{ratio:.2f}"
