"""Materialization intervals, seen in the checkpoints of a stretch.

Invariants: an interval is reported only if both of its materializations fell between checkpoints
that are retained, so its start, its end and its fullest checkpoint are known; no time is guessed
beyond the straight line between two neighbouring checkpoints.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tidelog.overhead.facts import Held, Point, Tally, Who


@dataclass(frozen=True, slots=True)
class Cut:
    """A materialization, and the first checkpoint of the stretch that builds on it."""

    upto: int
    at_ms: float | None
    """When the table was frozen; None when that was before the stretch."""
    first: int
    """Index of the checkpoint in the stretch."""


@dataclass(frozen=True, slots=True)
class Interval:
    """From one materialization of a subtask to the next one that a checkpoint builds on."""

    who: Who
    start_ms: float
    end_ms: float
    changes: int
    """Logged in between."""
    checkpoints: int
    """That build on the first of both, and so have the log of this interval."""
    peak_bytes: int
    """Log in the fullest of them."""
    peak_slot: int
    peak_changes: int
    """Changes in its log behind the materialization."""

    @property
    def seconds(self) -> float:
        """How long it was."""
        return (self.end_ms - self.start_ms) / 1000

    @property
    def peak_log(self) -> Held:
        """The log at its fullest."""
        return Held(self.peak_slot, *self.who)


def intervals(who: Who, points: Sequence[Point], held: Mapping[Held, Tally]) -> list[Interval]:
    """The intervals of a subtask that lie within a stretch, oldest first."""
    found = cuts(points)
    return [
        _interval(who, points[start.first : end.first], held, start, end)
        for start, end in pairwise(found)
        if start.at_ms is not None and end.at_ms is not None and end.at_ms > start.at_ms
    ]


def cuts(points: Sequence[Point]) -> list[Cut]:
    """The materializations that the checkpoints of a stretch build on, in order."""
    found: list[Cut] = []
    for index, point in enumerate(points):
        if not found or point.upto != found[-1].upto:
            found.append(Cut(point.upto, _passed_ms(points, point.upto), index))
    return found


def _passed_ms(points: Sequence[Point], seqno: int) -> float | None:
    """When the subtask logged its change `seqno`; None when that was before the stretch."""
    if not points or seqno < points[0].seqno or seqno == 0:
        return None
    before = points[0]
    for point in points:
        if point.seqno >= seqno:
            grown = point.seqno - before.seqno
            share = (seqno - before.seqno) / grown if grown else 0.0
            return before.created_ms + share * (point.created_ms - before.created_ms)
        before = point
    return None


def _interval(
    who: Who, points: Sequence[Point], held: Mapping[Held, Tally], start: Cut, end: Cut
) -> Interval:
    assert start.at_ms is not None and end.at_ms is not None
    sizes = {p.slot: held.get(Held(p.slot, *who), Tally()).stored_bytes for p in points}
    # Of equals the last one: it is nearest to the end of the interval.
    peak = max(points, key=lambda point: (sizes[point.slot], point.slot))
    return Interval(
        who=who,
        start_ms=start.at_ms,
        end_ms=end.at_ms,
        changes=end.upto - start.upto,
        checkpoints=len(points),
        peak_bytes=sizes[peak.slot],
        peak_slot=peak.slot,
        peak_changes=peak.seqno - start.upto,
    )
