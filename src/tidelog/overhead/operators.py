"""Operators: their subtasks together, and what the job stores for them.

Invariants: a sum over subtasks is over those of the newest generation that is retained, as earlier
ones may have been scaled differently; what only some subtasks can tell is not made up for others.
"""

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import add
from statistics import fmean

from tidelog.overhead.facts import BlockFacts, History, Snapshot, Tally, Who
from tidelog.overhead.missing import no_change
from tidelog.overhead.report import Comparison, OperatorReport, SubtaskReport
from tidelog.overhead.stretches import stretches
from tidelog.overhead.subtasks import bytes_per_change, report_subtask


def report_operators(history: History, blocks: BlockFacts) -> list[OperatorReport]:
    """Every operator with state of the newest checkpoint; what is special about windows is left
    out.
    """
    found = stretches(history.snapshots)
    newest = history.snapshots[-1]
    # Subtasks of another parallelism are others, even if they have the same number.
    alike = [stretch for stretch in found if stretch[-1].points.keys() == newest.points.keys()]
    return [
        _report(operator, [who for who in newest.points if who.operator == operator], alike, blocks)
        for operator, states in history.states.items()
        if states
    ]


def _report(
    operator: str,
    whos: Sequence[Who],
    found: Sequence[Sequence[Snapshot]],
    blocks: BlockFacts,
) -> OperatorReport:
    subtasks = tuple(report_subtask(who, found, blocks) for who in whos)
    compared = [each for each in subtasks if each.peak is not None]
    rates = [each.changes_per_s for each in subtasks if each.changes_per_s is not None]
    spans = [each.interval_s for each in compared if each.interval_s is not None]
    logs, tables = _sizes(whos, found)
    return OperatorReport(
        id=operator,
        subtasks=subtasks,
        changes_per_s=sum(rates) if rates else None,
        bytes_per_change=bytes_per_change(
            reduce(add, (blocks.distinct.get(who, Tally()) for who in whos), Tally())
        ),
        interval_s=fmean(spans) if spans else None,
        compared=len(compared),
        peak=_sum(each.peak for each in compared),
        log_bytes=fmean(logs),
        most_log_bytes=max(logs),
        table_bytes=fmean(tables),
        windows=None,
        missing=None if compared else _missing(subtasks),
    )


def _sizes(whos: Sequence[Who], found: Sequence[Sequence[Snapshot]]) -> tuple[list[int], list[int]]:
    """Log and table of these subtasks in each checkpoint."""
    snapshots = [snapshot for stretch in found for snapshot in stretch]
    held = [[each.points[who] for who in whos if who in each.points] for each in snapshots]
    return (
        [sum(point.log_bytes for point in points) for points in held],
        [sum(point.table_bytes for point in points) for points in held],
    )


def _sum(peaks: Iterable[Comparison | None]) -> Comparison | None:
    known = [peak for peak in peaks if peak is not None]
    if not known:
        return None
    return Comparison(
        sum(peak.predicted_bytes for peak in known), sum(peak.measured_bytes for peak in known)
    )


def _missing(subtasks: Sequence[SubtaskReport]) -> str:
    """The reason of a subtask that had changes, if any had."""
    reasons = [each.missing for each in subtasks if each.missing is not None]
    return next((reason for reason in reasons if reason != no_change()), reasons[0])
