"""Operators and their subtasks: rates, bytes, intervals, and the rule of thumb for their log.

Invariants: a prediction uses nothing but means over everything that is retained, a measurement
nothing but the fullest log of each interval; a sum over subtasks is over those of the newest
generation that is retained, as earlier ones may have been scaled differently; what only some
subtasks can tell is not made up for others.
"""

from collections.abc import Container, Iterable, Sequence
from math import ceil
from statistics import fmean
from typing import Final

from tidelog.checkpoint.manifest import OperatorState, StateInfo
from tidelog.cost.measured.facts import (
    BlockFacts,
    MeasuredRate,
    MeasuredSnapshot,
    Point,
    Tally,
    change_rate,
    contiguous_runs,
    cuts,
    intervals,
    points_of,
)
from tidelog.cost.measured.report import (
    BytesPerChange,
    Combine,
    Comparison,
    OperatorReport,
    SubtaskReport,
    WindowReport,
)
from tidelog.cost.model.formulas import log_peak_bytes, window_log_peak_bytes
from tidelog.cost.model.job import Settings
from tidelog.ids import SubtaskId

WANTED_INTERVALS: Final = 3
"""Intervals that the retained checkpoints should span: one or two are complete then."""

NO_CHANGE: Final = "nothing was changed while these checkpoints were written"
NO_LOG: Final = (
    "these checkpoints name no log: every one of them is a table of its own, as with "
    "`--no-changelog`"
)
NO_TIME: Final = (
    "expected two checkpoints in a row, written at different times; found none. "
    "Next: keep more of them with `tidelog run ... --retain N`, and try again"
)


def report_subtask(
    who: SubtaskId, runs: Sequence[Sequence[MeasuredSnapshot]], blocks: BlockFacts
) -> SubtaskReport:
    """What the runs of a history tell of a subtask."""
    by_run = [points for run in runs if (points := points_of(run, who))]
    rate = change_rate(by_run)
    per_change = bytes_per_change(blocks.distinct.get(who, Tally()))
    subtask_intervals = tuple(
        interval for points in by_run for interval in intervals(who, points, blocks.by_log)
    )
    interval_s = (
        fmean(interval.seconds for interval in subtask_intervals) if subtask_intervals else None
    )
    peak = None
    if rate.per_s is not None and per_change is not None and interval_s is not None:
        predicted = log_peak_bytes(rate.per_s, per_change.stored, interval_s)
        peak = Comparison(predicted, fmean(interval.peak_bytes for interval in subtask_intervals))
    return SubtaskReport(
        subtask=who.subtask,
        changes_per_s=rate.per_s,
        bytes_per_change=per_change,
        intervals=subtask_intervals,
        interval_s=interval_s,
        peak=peak,
        highest_peak_bytes=max(
            (interval.peak_bytes for interval in subtask_intervals), default=None
        ),
        missing=None if peak is not None else _missing(rate, per_change, by_run),
    )


def bytes_per_change(tally: Tally) -> BytesPerChange | None:
    """Average bytes per change; None when there were no changes."""
    if not tally.changes:
        return None
    return BytesPerChange(tally.raw_bytes / tally.changes, tally.stored_bytes / tally.changes)


def _missing(
    rate: MeasuredRate, per_change: BytesPerChange | None, by_run: Sequence[Sequence[Point]]
) -> str:
    if not rate.seconds:
        return NO_TIME
    if not rate.count:
        return NO_CHANGE
    if per_change is None:
        return NO_LOG
    within = [sum(cut.at_ms is not None for cut in cuts(points)) for points in by_run]
    pairs = sum(len(points) - 1 for points in by_run)
    return _too_few(max(within), rate.seconds, rate.seconds / pairs)


def _too_few(materializations: int, seconds: float, checkpoint_s: float) -> str:
    """Fewer than two materializations within the retained checkpoints of a run."""
    default_s = Settings().materialize.interval
    return (
        "expected two materializations or more within the retained checkpoints; found "
        f"{materializations} in {seconds:.1f} s. Next: let them span {WANTED_INTERVALS} "
        "materialization intervals: `tidelog run ... --retain N` with a larger N, "
        f"{ceil(WANTED_INTERVALS * default_s / checkpoint_s)} for the interval of {default_s:g} s "
        f"that is the default and a checkpoint every {checkpoint_s:.1f} s as here"
    )


def report_operators(
    history: Sequence[MeasuredSnapshot], operators: Iterable[OperatorState], blocks: BlockFacts
) -> list[OperatorReport]:
    """Every one with state of these operators, which are those of the newest checkpoint."""
    runs, newest = contiguous_runs(history), history[-1]
    # Subtasks of another parallelism are others, even if they have the same number.
    alike = [run for run in runs if run[-1].points.keys() == newest.points.keys()]
    return [
        _report(
            operator.id,
            [who for who in newest.points if who.operator == operator.id],
            alike,
            blocks,
        )
        for operator in operators
        if operator.states
    ]


def _report(
    operator: str,
    whos: Sequence[SubtaskId],
    runs: Sequence[Sequence[MeasuredSnapshot]],
    blocks: BlockFacts,
) -> OperatorReport:
    subtasks = tuple(report_subtask(who, runs, blocks) for who in whos)
    compared = [subtask for subtask in subtasks if subtask.peak is not None]
    rates = [subtask.changes_per_s for subtask in subtasks if subtask.changes_per_s is not None]
    spans = [subtask.interval_s for subtask in compared if subtask.interval_s is not None]
    snapshots = [
        [snapshot.points[who] for who in whos if who in snapshot.points]
        for run in runs
        for snapshot in run
    ]
    logs = [sum(point.log_bytes for point in points) for points in snapshots]
    peak = _sum([subtask.peak for subtask in subtasks if subtask.peak is not None])
    return OperatorReport(
        id=operator,
        subtasks=subtasks,
        changes_per_s=sum(rates) if rates else None,
        bytes_per_change=bytes_per_change(
            sum((blocks.distinct.get(who, Tally()) for who in whos), Tally())
        ),
        interval_s=fmean(spans) if spans else None,
        compared=len(compared),
        peak=peak,
        log_bytes=fmean(logs),
        most_log_bytes=max(logs),
        table_bytes=fmean(sum(point.table_bytes for point in points) for points in snapshots),
        windows=_windows(compared, blocks, sum(rates), fmean(spans), peak) if peak else None,
        missing=None if compared else _reason_of(subtasks),
    )


def has_windows(states: Iterable[StateInfo]) -> bool:
    """Whether an operator with these states keeps windows."""
    return any(info.kind.startswith("window-") for info in states)


def _windows(
    compared: Sequence[SubtaskReport],
    blocks: BlockFacts,
    changes_per_s: float,
    interval_s: float,
    peak: Comparison,
) -> WindowReport | None:
    """The rule for windows, from the fullest logs; None where no deletes were counted in them."""
    logs = (
        blocks.by_log[interval.peak_log] for subtask in compared for interval in subtask.intervals
    )
    tally = sum(logs, Tally())
    if not tally.deletes:
        return None
    deletes_per_s = changes_per_s * tally.deletes / tally.changes
    row_bytes = tally.stored_bytes / tally.changes
    return WindowReport(
        deletes_per_s=deletes_per_s,
        writes_per_row=tally.changes / tally.deletes - 1,
        peak=Comparison(
            window_log_peak_bytes(deletes_per_s, row_bytes, interval_s), peak.measured_bytes
        ),
    )


def _sum(peaks: Sequence[Comparison]) -> Comparison | None:
    predicted = sum(peak.predicted_bytes for peak in peaks)
    return Comparison(predicted, sum(peak.measured_bytes for peak in peaks)) if peaks else None


def _reason_of(subtasks: Sequence[SubtaskReport]) -> str:
    """The reason of a subtask that had changes, if any had."""
    reasons = [subtask.missing for subtask in subtasks if subtask.missing is not None]
    return next((reason for reason in reasons if reason != NO_CHANGE), reasons[0])


def combine_of(runs: Sequence[Sequence[MeasuredSnapshot]], sources: Container[str] = ()) -> Combine:
    """How many updates the write buffer makes one logged change of, or why that is not known.

    Updates and changes are those between the same two checkpoints of a run. Those of these sources
    are left out: they are positions.
    """
    pairs = [
        (run[0].points[who], last)
        for run in runs
        if len(run) > 1
        for who, last in run[-1].points.items()
        if who in run[0].points and who.operator not in sources
    ]
    changes = sum(last.seqno - first.seqno for first, last in pairs)
    updates = sum(last.updates - first.updates for first, last in pairs)
    if not changes:
        return Combine(None, NO_CHANGE if pairs else NO_TIME)
    return Combine(updates / changes, None)
