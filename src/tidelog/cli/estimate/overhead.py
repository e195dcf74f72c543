"""`tidelog overhead`: what the changelog of a job costs, measured, and what formulas predict.

Invariant: in JSON (docs/reference/cli-json.md) what is not known is null, and `missing` or `reason`
with it says why; the text for people is made from the JSON.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import click

from tidelog.cli.estimate.prices import Prices, object_fields, on_prices
from tidelog.cli.exit_codes import EXIT_OK, EXIT_PROBLEM
from tidelog.cli.options import options_of
from tidelog.cli.output import Column, Rows, fields_of
from tidelog.cli.spark.engine import EngineOptions, open_engine
from tidelog.cli.store.options import StoreCommand, on_store
from tidelog.cli.values import amount, short, size, span
from tidelog.cost.measured.analysis import measure
from tidelog.cost.measured.facts import MeasuredInterval
from tidelog.cost.measured.report import Comparison, OperatorReport, OverheadReport, SubtaskReport
from tidelog.cost.model.formulas import log_peak_bytes
from tidelog.options.units import plural

Fields = dict[str, Any]


@click.command("overhead")
@on_store
@options_of("engine", EngineOptions)
@on_prices
async def command(
    invocation: StoreCommand,
    engine: EngineOptions,
    providers: tuple[str, ...],
    price_files: tuple[Path, ...],
) -> int:
    """Measure what the changelog of the job at URL costs; nothing is written.

    From the retained checkpoints: change rate, bytes per change, materialization intervals, the
    log at its fullest and what `rate x bytes x interval` and the rule for windows predict; space
    amplification, and what log and manifests cost a month. It takes checkpoints that span three
    materialization intervals (`tidelog run --retain`); exits with 1 when there are fewer.
    """
    prices = Prices.chosen(providers, price_files)
    with (
        open_engine(invocation, "tidelog overhead", engine) as chosen,
        invocation.output.progress("reading the log") as progress,
    ):
        report = await measure(invocation.store, chosen, progress)
    fields = report_fields(report, prices)
    sources = prices.lines() if report.usage is not None else ()
    notes = (f"note: {note}" for note in report.notes)
    invocation.output.show(fields | prices.fields(), *_described(fields), *sources, *notes)
    return EXIT_OK if report.compared else EXIT_PROBLEM


def report_fields(report: OverheadReport, prices: Prices) -> Fields:
    usage = report.usage
    return {
        **fields_of(report, "usage"),
        "operators": [_operator(operator) for operator in report.operators],
        "space_amplification": report.space_amplification,
        "objects": [] if usage is None else object_fields(usage),
        "bills": [] if usage is None else prices.bills(usage),
    }


def _operator(operator: OperatorReport) -> Fields:
    windows = operator.windows
    return {
        **_flat(operator),
        "compared_subtasks": operator.compared,
        "log_share": operator.log_share,
        "windows": windows and {**fields_of(windows, "peak"), **_peak(windows.peak)},
        "subtasks": [_subtask(subtask) for subtask in operator.subtasks],
    }


def _subtask(subtask: SubtaskReport) -> Fields:
    return {
        **_flat(subtask),
        "intervals": [_interval(interval, subtask) for interval in subtask.intervals],
    }


def _interval(interval: MeasuredInterval, subtask: SubtaskReport) -> Fields:
    per_s, per_change, peak = subtask.changes_per_s, subtask.bytes_per_change, None
    if per_s is not None and per_change is not None:
        predicted = log_peak_bytes(per_s, per_change.stored, interval.seconds)
        peak = Comparison(predicted, interval.peak_bytes)
    return {
        **fields_of(interval, "who", "end_ms", "peak_bytes"),
        "start_ms": round(interval.start_ms),
        "seconds": interval.seconds,
        **_peak(peak),
    }


def _flat(report: OperatorReport | SubtaskReport) -> Fields:
    """The fields of a report as JSON; bytes per change and peak are fields of it, not objects."""
    per_change = report.bytes_per_change
    return {
        **fields_of(report, "bytes_per_change", "compared", "peak"),
        "raw_bytes_per_change": per_change and per_change.raw,
        "stored_bytes_per_change": per_change and per_change.stored,
        **_peak(report.peak),
    }


def _peak(peak: Comparison | None) -> Fields:
    return {
        "predicted_peak_bytes": peak and peak.predicted_bytes,
        "measured_peak_bytes": peak and peak.measured_bytes,
        "ratio": peak and peak.ratio,
    }


def _described(report: Fields) -> Iterator[str | Rows]:
    every, operators = report["checkpoint_s"], report["operators"]
    yield (
        f"{report['job']}: {plural(report['checkpoints'], 'checkpoint')}, "
        f"{report['first_checkpoint']} to {report['last_checkpoint']}, {span(report['seconds'])}"
        f"{'' if every is None else f', one every {span(every)}'}; read by the "
        f"{report['engine']} engine"
    )
    yield ""
    yield Rows(operators, *_OPERATORS)
    for operator in operators:
        if (windows := operator["windows"]) is not None:
            yield (
                f"\n{operator['id']}: 2 x (slices + timers) x bytes x interval = "
                f"{_size(windows['predicted_peak_bytes'])}, measured "
                f"{_size(windows['measured_peak_bytes'])}, ratio {_ratio(windows['ratio'])}; "
                f"{short(windows['deletes_per_s'])} rows/s go, written "
                f"{windows['writes_per_row']:.2f} times before (the rule supposes 1)"
            )
    yield from _reasons(operators)
    yield from _store(report)
    if report["bills"]:
        yield ""
        yield Rows(report["bills"], *_BILLS)


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
    ("storage", "storage", amount),
    ("requests", lambda bill: amount(sum(bill[n] for n in ("put", "list", "get", "delete")))),
    ("transfer", "transfer", amount),
    ("total", "total", amount),
)


def _reasons(operators: Sequence[Fields]) -> Iterator[str]:
    reasons: dict[str, list[str]] = defaultdict(list)
    for operator in operators:
        compared = operator["compared_subtasks"]
        if operator["missing"]:
            reasons[operator["missing"]].append(operator["id"])
        if 0 < compared < len(operator["subtasks"]):
            partly = f"{compared} of {plural(len(operator['subtasks']), 'subtask')} compared"
            reasons[partly].append(operator["id"])
    for reason, names in reasons.items():
        yield f"\n{', '.join(names)}: {reason}"


def _store(report: Fields) -> Iterator[str]:
    combine, amplification = report["combine"], report["space_amplification"]
    yield "\ncombine factor: " + (
        f"unknown: {combine['reason']}"
        if combine["factor"] is None
        else f"{combine['factor']:.2f} updates per logged change"
    )
    ratio = "unknown, as no table is stored" if amplification is None else _ratio(amplification)
    yield (
        f"space amplification: {ratio}; {size(report['stored_bytes'])} stored in all, "
        f"{size(report['table_bytes'])} in the tables of the newest checkpoint"
    )
    for flow in report["objects"]:
        yield (
            f"{flow['kind']}s: {short(flow['per_day'])} a day of {_size(flow['bytes'])}, "
            f"{span(flow['life_s'])} each, {_size(flow['stored_bytes'])} stored"
        )
