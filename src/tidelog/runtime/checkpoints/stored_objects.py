"""Whether the store still has what checkpoints refer to; what it has lost is uploaded again.

Invariants: only objects that a retained checkpoint needs before *and* after the store was listed
count as lost, for what is needed the whole time nobody of this job deletes. A table file that is
still in use goes up again under its name, so every checkpoint that names it is whole again; for
all else the subtask uploads its table anew, and the next checkpoint refers to that. A lost object
stops neither the job nor its checkpoints, but no native savepoint that names one is completed.
"""

import asyncio
import logging
from collections import ChainMap
from collections.abc import Awaitable, Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field

from tidelog.checkpoint.garbage_collector import Collector
from tidelog.checkpoint.invariants import lost_objects
from tidelog.checkpoint.manifest import Checkpoint
from tidelog.checkpoint.retention import checkpoint_objects
from tidelog.concurrency import AT_ONCE, together
from tidelog.effects import wait_for
from tidelog.errors import ObjectNotFoundError, TidelogError
from tidelog.events import Event
from tidelog.ids import Slot
from tidelog.options.units import plural
from tidelog.runtime.subtasks.start import JobStart
from tidelog.storage import object_names

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class StoredObjects:
    """Looks at the objects of one running job, now and then and before each native savepoint."""

    start: JobStart
    collector: Collector
    upload_again: Callable[[Set[str]], Awaitable[None]]
    """Lets the subtasks upload what they refer to of these objects, or what stands for it."""
    lost: int = 0
    """Objects that were found missing since the start."""
    uploaded_again: int = 0
    """Objects that were missing and are in the store again."""
    _lost_names: Set[str] = frozenset()
    """Names of objects that the store lacked at the last look and that are still not there."""
    _suspected: Set[str] = frozenset()
    """Objects that a checkpoint needs which is about to be stored, and that are missing."""
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _waiting: list[asyncio.Event] = field(default_factory=list)
    """Who waits for a look that begins after they have asked."""
    _running: bool = False

    @property
    def missing(self) -> Set[str]:
        """Objects that the store has lost and that a retained checkpoint still needs."""
        if not self._lost_names:
            return self._lost_names
        needed = set[str]().union(*self.collector.references.values())
        needed.update(map(object_names.checkpoint, self.collector.retained))
        return self._lost_names & needed

    async def run(self, refresh: Callable[[], None]) -> None:
        """Look at each interval and when it is asked for, until cancelled; `refresh` lets a
        checkpoint begin soon.
        """
        clock, schedule = self.start.effects.clock, self.start.config.checkpoint
        self._running = True
        try:
            while True:
                await wait_for(self._wake, clock, schedule.object_check_interval)
                self._wake.clear()
                waiting, self._waiting = self._waiting, []
                try:
                    await self._look(refresh)
                except TidelogError as error:
                    Event.OBJECTS_NOT_CHECKED.log(logger, error=error)
                finally:
                    for event in waiting:
                        event.set()
        finally:
            self._running = False
            for event in self._waiting:
                event.set()

    async def look(self, patience_s: float) -> None:
        """Let a look begin, and wait until what is missing was uploaded again, but no longer."""
        if not self._running:
            return
        done = asyncio.Event()
        self._waiting.append(done)
        self._wake.set()
        await wait_for(done, self.start.effects.clock, patience_s)

    async def lacking(self, checkpoint: Checkpoint, patience_s: float) -> str | None:
        """Why a checkpoint that is about to be stored could not be restored, although what can be
        had again was uploaded; None where the store has all that it needs.
        """
        needed = self.start.ledger.closure(checkpoint_objects(checkpoint))
        try:
            lost_names = await self._absent(needed, await self._listed(needed))
            if lost_names:
                self._suspected = lost_names
                await self.look(patience_s)
                lost_names = await self._absent(lost_names, {})
        except TidelogError as error:
            return str(error)
        if not lost_names:
            return None
        return (
            f"{plural(len(lost_names), 'object')} that it refers to, gone from the store, "
            f"{min(lost_names)} among them; what the local tables have is uploaded again: ask once "
            "more, or for a canonical savepoint, which needs none of them (--format canonical)"
        )

    async def _look(self, refresh: Callable[[], None]) -> None:
        suspected, self._suspected = self._suspected, frozenset[str]()
        lost_names = await self._missing_of_retained() | suspected
        unknown = lost_names - self._lost_names
        self._lost_names = lost_names
        if unknown:
            self.lost += len(unknown)
            slots = [
                slot for slot, names in self.collector.references.items() if names & lost_names
            ]
            Event.OBJECTS_MISSING.log(
                logger,
                objects=len(unknown),
                object=min(unknown),
                checkpoints=", ".join(map(str, sorted(slots))),
            )
        if lost_names:
            await self._replace(lost_names, refresh)

    async def _missing_of_retained(self) -> Set[str]:
        before = self.collector.references
        names = set[str]().union(*before.values())
        sizes = await self._listed(names)
        # Another process may have dropped a savepoint, and then its objects, without a word.
        stored_slots = frozenset(await self.start.slots.slots())
        slots = before.keys() & self.collector.references.keys()
        needed = set[str]().union(*(before[slot] for slot in slots & stored_slots))
        if slots and max(slots) > max(stored_slots, default=Slot(-1)):  # not dropped: lost as well
            needed.add(object_names.checkpoint(max(slots)))
        return await self._absent(needed, sizes)

    async def _listed(self, names: Iterable[str]) -> dict[str, int]:
        """Bytes of the stored objects of those kinds that occur among the names."""
        prefixes = {name.partition("/")[0] + "/" for name in names}
        listed = await together(map(self._list, sorted(prefixes)))
        return dict(ChainMap(*listed))

    async def _list(self, prefix: str) -> dict[str, int]:
        return {info.name: info.size async for info in self.start.objects.list(prefix)}

    async def _absent(self, names: Set[str], sizes: Mapping[str, int]) -> Set[str]:
        """The objects that the store lacks: what is not in its list is asked for by name."""
        lost_names = lost_objects(names, sizes, self.start.ledger.sizes())
        sizes = dict(await together(map(self._size, sorted(lost_names)), AT_ONCE))
        return lost_objects(lost_names, sizes, self.start.ledger.sizes())

    async def _size(self, name: str) -> tuple[str, int]:
        try:
            return name, (await self.start.objects.head(name)).size
        except ObjectNotFoundError:
            return name, -1

    async def _replace(self, lost_names: Set[str], refresh: Callable[[], None]) -> None:
        """Upload again what there is, and see what of it is in the store then."""
        copies = self.start.copies
        again = set[str]()
        if copies is not None:
            again = {name for name in sorted(lost_names) if await copies.put_again(name)}
        await self.upload_again(lost_names - again)
        self._lost_names = await self._absent(lost_names - again, {})
        done = len(lost_names) - len(self._lost_names)
        self.uploaded_again += done
        newest = max(self.collector.retained, default=None)
        if newest is not None and self._lost_names & (
            self.collector.references[newest] | {object_names.checkpoint(newest)}
        ):
            refresh()
        if done:
            Event.OBJECTS_UPLOADED_AGAIN.log(logger, objects=done, left=len(self._lost_names))
