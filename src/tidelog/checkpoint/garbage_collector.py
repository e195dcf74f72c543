"""The garbage collector: carries out retention in a running job.

Invariants: the manifest goes before the objects it names; an object goes only when neither a
retained checkpoint nor a live subtask refers to it; a failed deletion is tried again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Set
from dataclasses import dataclass, field
from typing import Final

from tidelog.checkpoint.manifest import Checkpoint, Savepoint, SlotRanges
from tidelog.checkpoint.retention import checkpoint_objects, slot_ranges, subsumed
from tidelog.checkpoint.slots import SlotLog
from tidelog.concurrency import together
from tidelog.errors import StorageError
from tidelog.events import Event
from tidelog.ids import Generation, Slot
from tidelog.storage.ledger import Ledger
from tidelog.storage.object_names import generation_of
from tidelog.storage.port import ObjectStore

logger = logging.getLogger(__name__)

_AT_ONCE: Final = 8


@dataclass(slots=True)
class Collector:
    """Deletes subsumed checkpoints and the objects nobody needs any more."""

    store: ObjectStore
    slots: SlotLog
    ledger: Ledger
    keep: int
    first_generation: Generation | None = None
    """Objects of generations before this one stay: something unreadable may refer to them."""
    deleted: int = 0
    claimed_savepoint: Slot | None = None
    """A savepoint that belongs to the job: it is dropped like any other checkpoint."""
    unreadable: frozenset[Slot] = frozenset()
    """Damaged slots: they stay, because their contents are not known."""
    _retained: dict[Slot, frozenset[str]] = field(default_factory=dict)
    _savepoints: set[Slot] = field(default_factory=set)
    _due: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def retained(self) -> Set[Slot]:
        """The slots of checkpoints that exist."""
        return self._retained.keys()

    @property
    def references(self) -> dict[Slot, frozenset[str]]:
        """All objects that each checkpoint needs, by slot."""
        return dict(self._retained)

    def retain(self, entry: Checkpoint) -> None:
        """Account for a checkpoint that exists."""
        objects = self.ledger.closure(checkpoint_objects(entry))
        self.ledger.inherit(objects)
        self._retained[entry.slot] = frozenset(objects)
        if isinstance(entry, Savepoint) and entry.slot != self.claimed_savepoint:
            self._savepoints.add(entry.slot)

    def history(self, slot: Slot, *, savepoint: bool, unproven: Iterable[Slot] = ()) -> SlotRanges:
        """The older checkpoints that stay when one completes in `slot`.

        `unproven` are slots of this job that it does not account for yet.
        """
        pinned = self._savepoints | ({slot} if savepoint else set())
        retained = {*self._retained, *unproven, slot}
        stay = retained.difference(subsumed(retained, self.keep, pinned), {slot})
        return slot_ranges(stay | self.unreadable)

    def completed(self, entry: Checkpoint) -> None:
        """A checkpoint completed, and no newer generation had started: older ones may go."""
        self.retain(entry)
        self._due.set()

    def forget(self, slot: Slot) -> None:
        """A savepoint was dropped: its objects may go."""
        self._retained.pop(slot, None)
        self._savepoints.discard(slot)
        self._due.set()

    async def run(self, live: Callable[[], Awaitable[set[str]]]) -> None:
        """Collect after each completed checkpoint until cancelled; `live` as in `collect`."""
        while True:
            await self._due.wait()
            self._due.clear()
            await self.collect(live)

    async def collect(self, live: Callable[[], Awaitable[set[str]]]) -> None:
        """Delete what retention allows; failures stay for the next time.

        `live` says which objects the next checkpoint may refer to.
        """
        for slot in subsumed(self._retained, self.keep, self._savepoints):
            try:
                await self.slots.remove(slot)
            except StorageError as error:
                Event.CHECKPOINT_NOT_DELETED.log(logger, checkpoint=slot, error=error)
                return
            del self._retained[slot]
        # Subtasks of other processes answer one after the other: what becomes known meanwhile is
        # for the next time, and what they give up meanwhile is in a checkpoint that completed.
        names = frozenset(self.ledger.names)
        in_use = self.ledger.closure(await live()) | self.ledger.busy
        retained: set[str] = set().union(*self._retained.values())
        dead = sorted(filter(self._may_go, names - retained - in_use))
        errors = await together(map(self._delete, dead), _AT_ONCE)
        if failed := [error for error in errors if error is not None]:
            Event.OBJECTS_NOT_DELETED.log(logger, objects=len(failed), error=failed[-1])

    def _may_go(self, name: str) -> bool:
        owner = generation_of(name)
        return self.first_generation is None or owner is None or owner >= self.first_generation

    async def _delete(self, name: str) -> StorageError | None:
        try:
            await self.store.delete(name)
        except StorageError as error:
            return error
        self.ledger.forget(name)
        self.deleted += 1
        return None
