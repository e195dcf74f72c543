"""Facts made by hand: a job with one operator whose log grows evenly."""

from collections.abc import Iterable

from tidelog.cost.measured.facts import BlockFacts, MeasuredSnapshot, Point, Tally
from tidelog.ids import SubtaskId

WHO = SubtaskId("count", 0)
CHANGE_BYTES = 10


def snapshot(
    slot: int, at_s: float, seqno: int, upto: int = 0, *, generation: int = 0
) -> MeasuredSnapshot:
    """A checkpoint of one subtask; a change takes ten bytes."""
    created_ms = int(at_s * 1000)
    point = Point(slot, created_ms, seqno, upto, upto, (seqno - upto) * CHANGE_BYTES)
    return MeasuredSnapshot(slot, generation, created_ms, 100, False, frozenset(), {WHO: point})


def blocks(snapshots: Iterable[MeasuredSnapshot]) -> BlockFacts:
    """One block per checkpoint, as its log says."""
    held = {}
    for each in snapshots:
        point = each.points[WHO]
        changes = point.seqno - point.upto
        held[each.slot, WHO] = Tally(1, changes, 2 * point.log_bytes, point.log_bytes)
    most = max(held.values(), key=lambda tally: tally.changes)
    return BlockFacts(held, {WHO: most})


def steady(seconds: int, interval_s: int) -> list[MeasuredSnapshot]:
    """Five changes and a checkpoint a second; a table frozen at the end of an interval is seen a
    second later.
    """
    return [
        snapshot(at, at, at * 5, (at - 1) // interval_s * interval_s * 5 if at else 0)
        for at in range(seconds + 1)
    ]
