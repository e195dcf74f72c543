"""What a start restores: the newest checkpoint of its own store, or one that the user chose.

Invariant: nothing is written before it is known to fit; a checkpoint of another store counts only
as long as the job's own store has none, so the same command started again resumes.
"""

from dataclasses import dataclass

from tidelog.checkpoint.manifest import Checkpoint, is_canonical
from tidelog.checkpoint.origin import Place, find
from tidelog.checkpoint.slots import SlotLog
from tidelog.checkpoint.startup import History, resumable
from tidelog.errors import ConfigError
from tidelog.ids import Slot
from tidelog.storage.port import ObjectStore


@dataclass(frozen=True, slots=True)
class RestoreFrom:
    """A checkpoint to start from.

    With `claim` it belongs to the job, which shares its files and drops it like any of its own.
    Otherwise it is never touched, and from its first completed checkpoint on the job needs none of
    its files.
    """

    place: Place
    store: ObjectStore | None = None
    """Another store than the job's own; it stays open as long as the job restores."""
    claim: bool = False

    def __post_init__(self) -> None:
        """Raises ConfigError for a claim to what lies in another store."""
        if self.claim and self.store is not None:
            raise ConfigError(
                "option --claim",
                expected="a checkpoint in the job's own store",
                found=f"one in {self.store.url}",
                action="use --no-claim, and drop it with `tidelog checkpoints drop` when the job "
                "has completed a checkpoint",
            )


@dataclass(frozen=True, slots=True)
class Resumption:
    """What a start resumes from, and how."""

    checkpoint: Checkpoint | None
    origin: ObjectStore | None
    """The store that has it, when it is not the job's own."""
    detached: bool
    """The job shares none of its objects."""
    claimed: Slot | None


async def look_ahead(
    slots: SlotLog, store: ObjectStore, wanted: RestoreFrom | None, slot: Slot | None
) -> Resumption:
    """What a start would resume from, before it fences anything; raises as `resumable`."""
    if wanted is None:
        return _own(await resumable(slots, slot))
    if wanted.store is None:
        found = await find(store, wanted.place)
        claimed = found.slot if wanted.claim else None
        return Resumption(found, None, is_canonical(found) or not wanted.claim, claimed)
    own = await resumable(slots, None)
    if own is not None:
        return _own(own)
    return Resumption(await find(wanted.store, wanted.place), wanted.store, True, None)


def confirmed(seen: Resumption, history: History, slot: Slot | None) -> Resumption:
    """The same after the store was taken over: meanwhile another start may have gone on.

    `slot` is the one that the user chose in this store. Raises as `History.resume_from`.
    """
    if seen.origin is not None:
        return _own(history.resume_from(None)) if history.checkpoints else seen
    found = history.resume_from(slot)
    return seen if found == seen.checkpoint else _own(found)


def _own(checkpoint: Checkpoint | None) -> Resumption:
    detached = checkpoint is not None and is_canonical(checkpoint)
    return Resumption(checkpoint, None, detached, None)
