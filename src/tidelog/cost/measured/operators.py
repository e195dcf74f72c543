"""Operators and their subtasks: rates, bytes, intervals, and the rule of thumb for their log.

Invariants: a prediction uses nothing but means over everything that is retained, a measurement
nothing but the fullest log of each interval; a sum over subtasks is over those of the newest
generation that is retained, as earlier ones may have been scaled differently; a figure that a
subtask lacks is not guessed.
"""

from collections.abc import Container, Iterable, Sequence
from itertools import chain
from math import ceil
from statistics import fmean
from typing import Final

from tidelog.checkpoint.manifest import OperatorState, StateInfo
from tidelog.cost.measured.facts import (
    BlockFacts,
    MeasuredInterval,
    MeasuredRate,
    MeasuredSnapshot,
    Point,
    Tally,
    change_rate,
    contiguous_runs,
    cuts,
    intervals,
    mean,
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
    """The figures of a subtask over the runs of a history."""
    by_run: list[list[Point]] = []
    complete: list[MeasuredInterval] = []
    for run in runs:
        if points := points_of(run, who):
            by_run.append(points)
            complete += intervals(who, points, blocks.by_log)
    rate = change_rate(by_run)
    per_change = bytes_per_change(blocks.distinct.get(who, Tally()))
    interval_s = mean([interval.seconds for interval in complete])
    peaks = [interval.peak_bytes for interval in complete]
    peak = None
    if rate.per_s is not None and per_change is not None and interval_s is not None:
        predicted = log_peak_bytes(rate.per_s, per_change.stored, interval_s)
        peak = Comparison(predicted, fmean(peaks))
    return SubtaskReport(
        subtask=who.subtask,
        changes_per_s=rate.per_s,
        bytes_per_change=per_change,
        intervals=tuple(complete),
        interval_s=interval_s,
        peak=peak,
        highest_peak_bytes=max(peaks, default=None),
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
    materializations = pairs = 0
    for points in by_run:
        pairs += len(points) - 1
        within = [cut for cut in cuts(points) if cut.at_ms is not None]
        materializations = max(materializations, len(within))
    checkpoint_s, default_s = rate.seconds / pairs, Settings().materialize.interval
    return (
        "expected two materializations or more within the retained checkpoints; found "
        f"{materializations} in {rate.seconds:.1f} s. Next: let them span {WANTED_INTERVALS} "
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
    reports = []
    for operator in operators:
        if operator.states:
            whos = [who for who in newest.points if who.operator == operator.id]
            reports.append(_report(operator.id, whos, alike, blocks))
    return reports


def _report(
    operator: str,
    whos: Sequence[SubtaskId],
    runs: Sequence[Sequence[MeasuredSnapshot]],
    blocks: BlockFacts,
) -> OperatorReport:
    subtasks: list[SubtaskReport] = []
    rates: list[float] = []
    spans: list[float] = []
    reasons: list[str] = []
    tally, windows_tally, peak = Tally(), Tally(), Comparison(0.0, 0.0)
    for who in whos:
        subtask = report_subtask(who, runs, blocks)
        subtasks.append(subtask)
        tally += blocks.distinct.get(who, Tally())
        if subtask.changes_per_s is not None:
            rates.append(subtask.changes_per_s)
        if subtask.missing is not None:
            reasons.append(subtask.missing)
        if subtask.peak is not None and subtask.interval_s is not None:
            peak += subtask.peak
            spans.append(subtask.interval_s)
            for interval in subtask.intervals:
                windows_tally += blocks.by_log[interval.peak_log]
    logs: list[int] = []
    tables: list[int] = []
    for snapshot in chain.from_iterable(runs):
        points = [snapshot.points[who] for who in whos if who in snapshot.points]
        logs.append(sum(point.log_bytes for point in points))
        tables.append(sum(point.table_bytes for point in points))
    return OperatorReport(
        id=operator,
        subtasks=tuple(subtasks),
        changes_per_s=sum(rates) if rates else None,
        bytes_per_change=bytes_per_change(tally),
        interval_s=mean(spans),
        compared=len(spans),
        peak=peak if spans else None,
        log_bytes=fmean(logs),
        most_log_bytes=max(logs),
        table_bytes=fmean(tables),
        windows=_windows(windows_tally, sum(rates), fmean(spans), peak) if spans else None,
        # That of a subtask with changes, if one had some.
        missing=None if spans else min(reasons, key=lambda reason: reason == NO_CHANGE),
    )


def has_windows(states: Iterable[StateInfo]) -> bool:
    """Whether an operator with these states keeps windows."""
    return any(info.kind.startswith("window-") for info in states)


def _windows(
    tally: Tally, changes_per_s: float, interval_s: float, peak: Comparison
) -> WindowReport | None:
    """The rule for windows, from the fullest logs; None where no deletes were counted in them."""
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


def combine_of(runs: Sequence[Sequence[MeasuredSnapshot]], sources: Container[str] = ()) -> Combine:
    """How many updates the write buffer makes one logged change of, or why that is not known.

    Updates and changes are those between the same two checkpoints of a run. Those of these sources
    are left out: they are positions.
    """
    changes = updates = pairs = 0
    for run in runs:
        for who, last in run[-1].points.items():
            first = run[0].points.get(who)
            if len(run) > 1 and first is not None and who.operator not in sources:
                pairs += 1
                changes += last.seqno - first.seqno
                updates += last.updates - first.updates
    if not changes:
        return Combine(None, NO_CHANGE if pairs else NO_TIME)
    return Combine(updates / changes, None)
