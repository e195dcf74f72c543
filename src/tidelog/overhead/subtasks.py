"""One subtask: its rate, its bytes, its intervals, and the rule of thumb for its log.

Invariant: the prediction uses nothing but means over everything that is retained, the measurement
nothing but the fullest log of each interval.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean

from tidelog.estimate.formulas import log_peak_bytes
from tidelog.overhead.facts import BlockFacts, Held, Point, Snapshot, Tally, Who
from tidelog.overhead.intervals import Interval, cuts, intervals
from tidelog.overhead.missing import no_change, no_log, no_time, too_few
from tidelog.overhead.report import BytesPerChange, Comparison, SubtaskReport
from tidelog.overhead.stretches import Rate, change_rate, points_of


def report_subtask(
    who: Who, found: Sequence[Sequence[Snapshot]], blocks: BlockFacts
) -> SubtaskReport:
    """What the stretches of a history tell of a subtask."""
    stretched = [points for stretch in found if (points := points_of(stretch, who))]
    rate = change_rate(stretched)
    per_change = bytes_per_change(blocks.distinct.get(who, Tally()))
    seen = _intervals(who, stretched, blocks.held)
    peak = _peak(rate, per_change, seen)
    return SubtaskReport(
        subtask=who.subtask,
        changes_per_s=rate.per_s,
        bytes_per_change=per_change,
        intervals=seen,
        interval_s=fmean(each.seconds for each in seen) if seen else None,
        peak=peak,
        highest_peak_bytes=max((each.peak_bytes for each in seen), default=None),
        missing=None if peak is not None else _missing(rate, per_change, stretched),
    )


def bytes_per_change(tally: Tally) -> BytesPerChange | None:
    """None without a change."""
    if not tally.changes:
        return None
    return BytesPerChange(tally.raw_bytes / tally.changes, tally.stored_bytes / tally.changes)


def _intervals(
    who: Who, stretched: Sequence[Sequence[Point]], held: Mapping[Held, Tally]
) -> tuple[Interval, ...]:
    return tuple(each for points in stretched for each in intervals(who, points, held))


def _peak(
    rate: Rate, per_change: BytesPerChange | None, seen: Sequence[Interval]
) -> Comparison | None:
    if rate.per_s is None or per_change is None or not seen:
        return None
    interval_s = fmean(each.seconds for each in seen)
    return Comparison(
        predicted_bytes=log_peak_bytes(rate.per_s, per_change.stored, interval_s),
        measured_bytes=fmean(each.peak_bytes for each in seen),
    )


def _missing(
    rate: Rate, per_change: BytesPerChange | None, stretched: Sequence[Sequence[Point]]
) -> str:
    if not rate.seconds:
        return no_time()
    if not rate.count:
        return no_change()
    if per_change is None:
        return no_log()
    within = [sum(cut.at_ms is not None for cut in cuts(points)) for points in stretched]
    pairs = sum(len(points) - 1 for points in stretched)
    return too_few(max(within), rate.seconds, rate.seconds / pairs)
