"""The collector: carries out retention in a running job.

Invariants: the manifest goes before the objects it names; an object goes only when neither a
retained checkpoint nor a live subtask refers to it; a failed deletion is tried again.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from tidelog.checkpoint.manifest import Checkpoint, Savepoint
from tidelog.checkpoint.retention import checkpoint_objects, garbage, subsumed
from tidelog.checkpoint.slots import SlotLog
from tidelog.errors import StorageError
from tidelog.ids import Generation, Slot
from tidelog.storage.ledger import Ledger
from tidelog.storage.paths import generation_of
from tidelog.storage.port import ObjectStore


@dataclass(slots=True)
class Collector:
    """Deletes subsumed checkpoints and the objects nobody needs any more."""

    store: ObjectStore
    slots: SlotLog
    ledger: Ledger
    keep: int
    live: Callable[[], set[str]]
    """Objects the next checkpoint may refer to."""
    spared: Generation | None = None
    """Objects of generations before this one stay: something unreadable may refer to them."""
    concurrency: int = 8
    deleted: int = 0
    claimed: Slot | None = None
    """A savepoint that is the job's own now: it goes like any other checkpoint."""
    _retained: dict[Slot, frozenset[str]] = field(default_factory=dict)
    _savepoints: set[Slot] = field(default_factory=set)
    _due: asyncio.Event = field(default_factory=asyncio.Event)

    def retain(self, entry: Checkpoint) -> None:
        """Account for a checkpoint that exists."""
        objects = self.ledger.closure(checkpoint_objects(entry))
        self.ledger.inherit(objects)
        self._retained[entry.slot] = frozenset(objects)
        if isinstance(entry, Savepoint) and entry.slot != self.claimed:
            self._savepoints.add(entry.slot)

    def completed(self, entry: Checkpoint) -> None:
        """A checkpoint completed: older ones may go."""
        self.retain(entry)
        self._due.set()

    def forget(self, slot: Slot) -> None:
        """A savepoint was dropped: its objects may go."""
        self._retained.pop(slot, None)
        self._savepoints.discard(slot)
        self._due.set()

    async def run(self) -> None:
        """Collect after each completed checkpoint until cancelled."""
        while True:
            await self._due.wait()
            self._due.clear()
            await self.collect()

    async def collect(self) -> None:
        """Delete what retention allows; failures stay for the next time."""
        for slot in subsumed(self._retained, self.keep, self._savepoints):
            try:
                await self.slots.remove(slot)
            except StorageError:
                return
            del self._retained[slot]
        retained: set[str] = set().union(*self._retained.values())
        live = self.ledger.closure(self.live()) | self.ledger.busy
        dead = sorted(filter(self._may_go, garbage(self.ledger.names, retained, live)))
        for start in range(0, len(dead), self.concurrency):
            await asyncio.gather(*map(self._delete, dead[start : start + self.concurrency]))

    def _may_go(self, name: str) -> bool:
        owner = generation_of(name)
        return self.spared is None or owner is None or owner >= self.spared

    async def _delete(self, name: str) -> None:
        try:
            await self.store.delete(name)
        except StorageError:
            return
        self.ledger.forget(name)
        self.deleted += 1
