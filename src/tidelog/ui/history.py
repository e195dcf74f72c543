"""What was seen of a job and its store while the page was open, in bounded memory.

Invariants: samples of a job reach back to the first one however long it runs, for as they become
many every other one goes and the next ones lie further apart; a checkpoint is remembered after
the store has dropped it.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from tidelog.checkpoint.manifest import Checkpoint, MaterializationRef
from tidelog.ids import Slot, SubtaskId
from tidelog.ui.document import CheckpointPoint, Materialized

T = TypeVar("T")

SAMPLES: Final = 600
CHECKPOINTS: Final = 512
MATERIALIZATIONS: Final = 1024


@dataclass(slots=True)
class Downsampled(Generic[T]):
    """A list that drops every other item as it becomes long, and takes fewer from then on."""

    limit: int = SAMPLES
    _kept: list[T] = field(default_factory=list)
    _apart: int = 1
    """One of so many items is kept."""
    _offered: int = 0

    def add(self, item: T) -> None:
        """Take the next item."""
        if self._offered % self._apart == 0:
            self._kept.append(item)
        self._offered += 1
        if len(self._kept) > self.limit:
            del self._kept[1::2]
            self._apart *= 2

    def all(self) -> list[T]:
        """The items that were kept, oldest first."""
        return list(self._kept)


class SeenCheckpoints:
    """Checkpoints of the store and of the job, oldest first; each once."""

    def __init__(self, limit: int = CHECKPOINTS) -> None:
        self._limit = limit
        self._points: dict[tuple[int, int], CheckpointPoint] = {}

    def add(self, points: Iterable[CheckpointPoint]) -> None:
        """Take points; one that says where its time went replaces one that does not."""
        for point in points:
            key = point.slot, point.checkpoint_id
            known = self._points.get(key)
            if known is None or known.phases is None or point.phases is not None:
                self._points[key] = point
        for key in sorted(self._points)[: -self._limit]:
            del self._points[key]

    def all(self) -> list[CheckpointPoint]:
        """The points by slot."""
        return [point for _, point in sorted(self._points.items())]


@dataclass(frozen=True, slots=True)
class FirstNamed:
    """The first known checkpoint that names a materialization."""

    event: Materialized
    before: bool
    """The checkpoint was the oldest one when the store was read, so an older checkpoint, deleted
    since, may have named the table first."""


class SeenMaterializations:
    """When each table was uploaded, as far as checkpoints tell."""

    def __init__(self, limit: int = MATERIALIZATIONS) -> None:
        self._limit = limit
        self._first: OrderedDict[str, FirstNamed] = OrderedDict()
        self._newest: Slot | None = None
        self._told: dict[tuple[str, int, int], Materialized] = {}
        """Uploads that the job itself told, by operator, subtask and first change to replay."""

    def told(self, events: Iterable[Materialized]) -> None:
        """Take what a job says: it knows every one of its checkpoints."""
        self._told |= {(each.operator, each.subtask, each.upto): each for each in events}
        for key in sorted(self._told, key=lambda key: self._told[key].at_ms)[: -self._limit]:
            del self._told[key]

    def add(self, checkpoints: Mapping[Slot, Checkpoint]) -> None:
        """Take the checkpoints that are stored."""
        fresh = [
            c for s, c in sorted(checkpoints.items()) if self._newest is None or s > self._newest
        ]
        for checkpoint in fresh:
            before = self._newest is None
            for owner, state in checkpoint.subtasks():
                ref = state.materialization
                if ref is not None and ref.descriptor not in self._first:
                    who = SubtaskId(owner.id, state.index)
                    self._first[ref.descriptor] = FirstNamed(_event(who, checkpoint, ref), before)
            self._newest = checkpoint.slot
        while len(self._first) > self._limit:
            self._first.popitem(last=False)

    def first(self, who: SubtaskId, ref: MaterializationRef) -> FirstNamed | None:
        """The first known checkpoint that names it; None when that was long ago."""
        told = self._told.get((*who, ref.upto))
        return self._first.get(ref.descriptor) if told is None else FirstNamed(told, False)

    def events(self) -> list[Materialized]:
        """Uploads whose time is known, oldest first."""
        seen = (first.event for first in self._first.values() if not first.before)
        events = {(each.operator, each.subtask, each.upto): each for each in seen} | self._told
        return sorted(events.values(), key=lambda each: each.at_ms)[-self._limit :]


def _event(who: SubtaskId, checkpoint: Checkpoint, ref: MaterializationRef) -> Materialized:
    return Materialized(who.operator, who.subtask, checkpoint.created_ms, ref.table_bytes, ref.upto)
