"""Stretches of a history: retained checkpoints without one missing between them.

Invariants: a stretch is of one generation and of slots that follow each other, so nothing that
happened within it is hidden: no restart, no pause, no peak; numbers of changes never go back in it.
What a job does at the end of its data is no part of one: its last checkpoint stands alone.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tidelog.overhead.facts import Point, Snapshot, Who


@dataclass(frozen=True, slots=True)
class Rate:
    """How fast a number grew over some stretches."""

    count: float
    seconds: float

    @property
    def per_s(self) -> float | None:
        """None without a time to divide by."""
        return self.count / self.seconds if self.seconds > 0 else None


def stretches(snapshots: Iterable[Snapshot]) -> list[list[Snapshot]]:
    """Split a history, oldest first, where checkpoints are missing, or the job was restarted or
    ended.
    """
    found: list[list[Snapshot]] = []
    last: Snapshot | None = None
    for snapshot in snapshots:
        follows = last is not None and (
            snapshot.generation == last.generation
            and snapshot.slot == last.slot + 1
            and snapshot.created_ms >= last.created_ms
            and not snapshot.final
        )
        if not follows:
            found.append([])
        found[-1].append(snapshot)
        last = snapshot
    return found


def seconds(found: Iterable[Sequence[Snapshot]]) -> float:
    """Time that stretches cover."""
    return sum(stretch[-1].created_ms - stretch[0].created_ms for stretch in found) / 1000


def points_of(stretch: Iterable[Snapshot], who: Who) -> list[Point]:
    """A subtask in each checkpoint of a stretch that has it."""
    return [snapshot.points[who] for snapshot in stretch if who in snapshot.points]


def change_rate(found: Iterable[Sequence[Point]]) -> Rate:
    """Changes of a subtask over the time between its first and last checkpoint of each stretch."""
    stretched = [points for points in found if points]
    return Rate(
        sum(points[-1].seqno - points[0].seqno for points in stretched),
        sum(points[-1].created_ms - points[0].created_ms for points in stretched) / 1000,
    )
