"""The rule for windows, 2 x (slice + timer) rate x bytes x interval, checked on a job.

Invariants: rates are counts of slices and timers that went in the logs of the fullest checkpoints,
over the time in which so many changes were logged; only states of windows count as windows, or,
where options say that an operator with timers keeps windows by itself, all but its timers.
Source of the rule: `tidelog.cost.model.formulas`.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from tidelog.checkpoint.manifest import StateInfo
from tidelog.cost.measured.facts import MeasuredLog, Tally, Written
from tidelog.cost.measured.intervals import Interval, MeasuredRate
from tidelog.cost.measured.report import Comparison, OperatorReport, WindowReport
from tidelog.cost.model.formulas import window_log_peak_bytes
from tidelog.state.schema.evolution import IN_SLICES

_SPAN: Final = re.compile(r"size (\d+) ms, slide (\d+) ms")
_TIMERS: Final = "timers"
_BY_TIME: Final = "-by-time"
_NONE_FIRED: Final = "no window fired in the logs of the fullest checkpoints. Next: try again later"


@dataclass(frozen=True, slots=True)
class Span:
    """Windows of `size_ms`, one every `slide_ms`."""

    size_ms: int
    slide_ms: int


@dataclass(frozen=True, slots=True)
class WindowStates:
    """Which states of an operator are windows and which are their timers, by number."""

    span: Span | None
    shared: bool
    """Windows share slices."""
    windows: frozenset[int]
    timers: frozenset[int]
    by_time: frozenset[int]
    """The timer states that have one row per timer; the others repeat it by key."""


def window_states(states: Iterable[StateInfo], given: Span | None) -> WindowStates | None:
    """The windows of an operator; None when it keeps none. A span that was given goes first."""
    states = list(states)
    timers = frozenset(info.id for info in states if info.kind == _TIMERS)
    by_time = frozenset(info.id for info in states if info.name.endswith(_BY_TIME)) & timers
    windows = frozenset(info.id for info in states if info.kind.startswith("window-"))
    if not windows and given is not None:
        windows = frozenset(info.id for info in states) - timers
    if not windows or not timers:
        return None
    matches = (_SPAN.fullmatch(text) for info in states for text in info.schema)
    stored = next((Span(int(m[1]), int(m[2])) for m in matches if m is not None), None)
    shared = any(IN_SLICES in info.schema for info in states)
    return WindowStates(given or stored, shared, windows, timers, by_time)


def fullest_logs(report: OperatorReport) -> list[Interval]:
    """The intervals whose fullest logs show what windows do."""
    return [interval for subtask in report.subtasks for interval in subtask.intervals]


def with_windows(
    report: OperatorReport, kept: WindowStates, written: Mapping[Written, Tally]
) -> OperatorReport:
    """The report of an operator with the rule checked."""
    size, slide = (kept.span.size_ms, kept.span.slide_ms) if kept.span else (None, None)
    reason, fired = report.missing, None
    if report.peak is not None:
        whole = [i for i in fullest_logs(report) if _read(written, i) == i.peak_changes]
        fired = _fired(kept, written, whole)
        reason = _NONE_FIRED
    if fired is None or report.bytes_per_change is None or report.interval_s is None:
        return replace(report, windows=WindowReport(size, slide, kept.shared, missing=reason))
    share = report.bytes_per_change.stored / report.bytes_per_change.raw
    slice_bytes, timer_bytes = share * fired.slice_bytes, share * fired.timer_bytes
    predicted = window_log_peak_bytes(
        fired.slices_per_s, fired.timers_per_s, slice_bytes, timer_bytes, report.interval_s
    )
    assert report.peak is not None
    checked = WindowReport(
        size,
        slide,
        kept.shared,
        slices_per_s=fired.slices_per_s,
        timers_per_s=fired.timers_per_s,
        slice_bytes=slice_bytes,
        timer_bytes=timer_bytes,
        writes_per_slice=fired.writes,
        peak=Comparison(predicted, report.peak.measured_bytes),
    )
    return replace(report, windows=checked)


class _Fired(NamedTuple):
    """What fired in some logs; bytes of a change on average, before compression."""

    slices_per_s: float
    timers_per_s: float
    slice_bytes: float
    timer_bytes: float
    writes: float
    """Rows of windows put, per row deleted."""


def _fired(
    kept: WindowStates, written: Mapping[Written, Tally], whole: Sequence[Interval]
) -> _Fired | None:
    """What the windows that fired had; None when no window fired."""
    logs = {interval.peak_log for interval in whole}
    put = _total(written, logs, kept.windows, deletes=False)
    deleted = _total(written, logs, kept.windows, deletes=True)
    if not deleted.changes:
        return None
    timers = _total(written, logs, kept.timers)
    each_once = _total(written, logs, kept.by_time)
    return _Fired(
        slices_per_s=_deleted_per_s(kept.windows, written, whole),
        timers_per_s=_deleted_per_s(kept.by_time, written, whole),
        slice_bytes=(put + deleted).raw_bytes / (put + deleted).changes,
        timer_bytes=timers.raw_bytes / each_once.changes if each_once.changes else 0.0,
        writes=put.changes / deleted.changes,
    )


def _deleted_per_s(
    states: Collection[int], written: Mapping[Written, Tally], whole: Sequence[Interval]
) -> float:
    """Rows deleted a second, summed over the subtasks."""
    total = 0.0
    for who in dict.fromkeys(interval.who for interval in whole):
        own = [interval for interval in whole if interval.who == who]
        deleted = _total(written, {each.peak_log for each in own}, states, deletes=True)
        # Windows fire in bursts, so the last moment of a log may be far from typical.
        covered = sum(each.seconds * each.peak_changes / each.changes for each in own)
        total += MeasuredRate(deleted.changes, covered).per_s or 0.0
    return total


def _total(
    written: Mapping[Written, Tally],
    logs: Collection[MeasuredLog],
    states: Collection[int],
    *,
    deletes: bool | None = None,
) -> Tally:
    """Changes of some states in some logs; with `deletes`, only the deletes or only the puts."""
    found = (
        tally
        for key, tally in written.items()
        if key.log in logs and key.state_id in states and deletes in (None, key.deletes)
    )
    return sum(found, Tally())


def _read(written: Mapping[Written, Tally], interval: Interval) -> int:
    """Changes that were read of an interval's fullest log; fewer when it was dropped meanwhile."""
    return sum(tally.changes for key, tally in written.items() if key.log == interval.peak_log)
