"""What was seen of a job and its store while the page was open, in bounded memory.

Invariants: samples of a job reach back to the first one however long it runs, for as they become
many every other one goes and the next ones lie further apart; a checkpoint is remembered after
the store has dropped it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tidelog.checkpoint.manifest import Checkpoint
from tidelog.ids import Slot
from tidelog.ui.live import Sample

SAMPLES: Final = 600
CHECKPOINTS: Final = 512
MATERIALIZATIONS: Final = 1024


@dataclass(slots=True)
class Downsampled:
    """A list that drops every other item as it becomes long, and takes fewer from then on."""

    _samples: list[Sample] = field(default_factory=list)
    _interval: int = 1
    """One of so many items is kept."""
    _offered: int = 0

    def add(self, item: Sample) -> None:
        if self._offered % self._interval == 0:
            self._samples.append(item)
        self._offered += 1
        if len(self._samples) > SAMPLES:
            del self._samples[1::2]
            self._interval *= 2

    def all(self) -> list[Sample]:
        """The items that were kept, oldest first."""
        return list(self._samples)


@dataclass(slots=True)
class SeenCheckpoints:
    """Checkpoints of the store and of the job, oldest first; each once."""

    limit: int = CHECKPOINTS
    _points: dict[tuple[int, int], dict[str, Any]] = field(default_factory=dict)

    def add(self, points: Iterable[dict[str, Any]]) -> None:
        """Take points; one that says where its time went replaces one that does not."""
        for point in points:
            key = point["checkpoint"], point.get("attempt", 0)
            if not self._points.get(key, {}).get("phases") or point.get("phases"):
                self._points[key] = point
        for key in sorted(self._points)[: -self.limit]:
            del self._points[key]

    def all(self, checkpoints: Mapping[Slot, Checkpoint]) -> list[dict[str, Any]]:
        """The points by number; those that are stored are marked."""
        keys = {(c.slot, c.checkpoint_id) for c in checkpoints.values()}
        return [{**point, "stored": key in keys} for key, point in sorted(self._points.items())]


@dataclass(slots=True)
class SeenMaterializations:
    """When each table was uploaded, as far as checkpoints and the job say."""

    _events: dict[tuple[Any, ...], dict[str, Any]] = field(default_factory=dict)
    """Uploads by operator, subtask and first change to replay; without `at_ms` where the oldest
    checkpoint that was seen names the table: an older one, deleted since, may have done so first.
    """
    _newest: Slot | None = None

    def add_events(self, events: Iterable[dict[str, Any]]) -> None:
        """Take what a job says: it knows every one of its checkpoints."""
        self._events |= {_key(event): event for event in events}
        self._forget()

    def add(self, checkpoints: Mapping[Slot, Checkpoint]) -> None:
        """Take the checkpoints that are stored."""
        for slot, checkpoint in sorted(checkpoints.items()):
            if self._newest is not None and slot <= self._newest:
                continue
            at_ms = None if self._newest is None else checkpoint.created_ms
            for owner, state in checkpoint.subtasks():
                if (ref := state.materialization) is not None:
                    table = {"table_bytes": ref.table_bytes, "upto": ref.upto, "at_ms": at_ms}
                    event = {"operator": owner.id, "subtask": state.index, **table}
                    self._events.setdefault(_key(event), event)
            self._newest = slot
        self._forget()

    def _forget(self) -> None:
        for key in sorted(self._events, key=lambda key: _at(self._events[key]))[:-MATERIALIZATIONS]:
            del self._events[key]

    def all(self) -> list[dict[str, Any]]:
        """Uploads whose time is known, oldest first."""
        return sorted((e for e in self._events.values() if _at(e)), key=_at)


def _key(event: Mapping[str, Any]) -> tuple[Any, ...]:
    return event.get("operator"), event.get("subtask"), event.get("upto")


def _at(event: Mapping[str, Any]) -> int:
    return event.get("at_ms") or 0
