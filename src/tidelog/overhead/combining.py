"""The combine factor: how many updates the write buffer makes one logged change of.

Invariant: updates and changes are those between the same two checkpoints of a stretch, so it does
not matter since when updates are counted.
"""

from collections.abc import Sequence

from tidelog.overhead.facts import Snapshot
from tidelog.overhead.missing import no_change, no_time, not_counted
from tidelog.overhead.report import Combine


def combine_of(found: Sequence[Sequence[Snapshot]]) -> Combine:
    """The factor over all subtasks and stretches, or why there is none."""
    pairs = [
        (stretch[0].points[who], last)
        for stretch in found
        if len(stretch) > 1
        for who, last in stretch[-1].points.items()
        if who in stretch[0].points
    ]
    changes = sum(last.seqno - first.seqno for first, last in pairs)
    updates = sum(last.updates - first.updates for first, last in pairs)
    if not changes:
        return Combine(None, no_change() if pairs else no_time())
    return Combine(updates / changes, None) if updates else Combine(None, not_counted())
