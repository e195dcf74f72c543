"""A clone: a checkpoint and all that it needs in a store of its own, where a job goes on from it.

Invariants: the origin is only read; the objects are there before the checkpoint that names them,
so a clone cut short has no checkpoint and can be repeated; a finished clone needs nothing of its
origin, which may change, drop and delete what it likes.

An object that two stores on one local disk share is one file with a name in each store. It is
never changed, and each store may delete its own name: the bytes stay until the last name is gone.
"""

import logging
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from tidelog.catalog.locate import CheckpointName, find
from tidelog.checkpoint.descriptor import decode_descriptor
from tidelog.checkpoint.finished import without_transactions
from tidelog.checkpoint.invariants import Need, direct_needs, table_needs
from tidelog.checkpoint.manifest import (
    Author,
    Checkpoint,
    Entry,
    Savepoint,
    Start,
    encode_entry,
    is_canonical,
)
from tidelog.checkpoint.retention import slot_ranges
from tidelog.checkpoint.slots import after_all, list_slots
from tidelog.concurrency import Progress, gather_bounded, no_progress
from tidelog.effects import Effects
from tidelog.errors import ConfigError, CorruptObjectError, ObjectNotFoundError, RestoreError
from tidelog.events import Event
from tidelog.ids import Generation, Slot
from tidelog.storage import object_names
from tidelog.storage.document import content_hash
from tidelog.storage.local import local_directory
from tidelog.storage.local_files import make_directory, sync_directory
from tidelog.storage.log_store import check_no_log, log_place
from tidelog.storage.object_names import check_name
from tidelog.storage.port import ObjectStore, create_once

logger = logging.getLogger(__name__)


async def share(source: ObjectStore, target: ObjectStore, name: str, effects: Effects) -> bool:
    """Give an object of a local store a name in another one.

    False when that cannot be: a store is not local, the two are on different disks, the disk knows
    no links, or the object is not there. Then it has to be copied, which says what is wrong.
    """
    source_directory, target_directory = local_directory(source.url), local_directory(target.url)
    if source_directory is None or target_directory is None:
        return False
    check_name(name)
    try:
        await effects.offload.run(_link, source_directory, target_directory, name)
    except OSError as error:
        Event.OBJECT_NOT_LINKED.log(logger, object=name, error=error)
        return False
    return True


def _link(source: Path, target: Path, name: str) -> None:
    path = target / name
    make_directory(path.parent)
    with suppress(FileExistsError):
        path.hardlink_to(source / name)
    if not path.samefile(source / name):
        raise FileExistsError(name)
    sync_directory(path.parent)


@dataclass(frozen=True, slots=True)
class CloneResult:
    """What a clone consists of; sizes in bytes."""

    checkpoint: Checkpoint
    shared: int
    """Objects that are hard links to the origin's files."""
    shared_bytes: int
    copied: int
    """Objects that were copied."""
    copied_bytes: int


@dataclass(slots=True)
class Clone:
    """Clones `origin` into `target`."""

    origin: ObjectStore
    target: ObjectStore
    effects: Effects
    sharing: bool = True
    """Where both stores are on one disk; off: everything is copied."""
    keep_transactions: bool = False
    """The clone goes on with the origin's output, from which sinks then keep the origin;
    off: output that was not committed is left to the origin, and the clone writes what comes after
    the checkpoint, somewhere else.
    """

    async def run(self, name: CheckpointName, progress: Progress = no_progress) -> CloneResult:
        """Make the clone.

        Raises ConfigError when the target is in use, RestoreError when the origin dropped
        something meanwhile, CorruptObjectError, FormatVersionError, and what the stores raise.
        """
        checkpoint = await find(self.origin, name)
        needs = await self._needs(checkpoint)
        entry = msgspec.structs.replace(_plain(checkpoint), history=())
        author, history = entry.author, slot_ranges(())
        if self.keep_transactions:
            # The origin's starts are older for sinks from now on, however often it is started.
            author = Author(Generation(after_all(entry.slot)), author.attempt)
            history = slot_ranges([entry.slot])
        else:
            entry = without_transactions(entry)
        slot = Slot(author.generation)
        start = Start(slot, author, entry.created_ms, entry.job, history=history)
        await self._check_target(start, entry)
        async for _ in self.target.list(object_names.SEGMENTS):
            break  # a new store settles with this where its log is
        has_log_store = bool(await log_place(self.origin) or await log_place(self.target))
        objects = await gather_bounded(
            needs, partial(self._bring, has_log_store=has_log_store), progress
        )
        for written in (start, entry):
            await create_once(
                self.target, object_names.checkpoint(written.slot), encode_entry(written)
            )
        shared: list[int] = []
        copied: list[int] = []
        for is_shared, size in objects.values():
            (shared if is_shared else copied).append(size)
        return CloneResult(entry, len(shared), sum(shared), len(copied), sum(copied))

    async def _needs(self, checkpoint: Checkpoint) -> list[Need]:
        """Every object that the checkpoint needs, each once."""
        needs: dict[str, Need] = {}
        for direct in direct_needs(checkpoint):
            needs[direct.name] = direct
            if direct.name.startswith(object_names.MATERIALIZATIONS):
                descriptor = decode_descriptor(await self._get(direct.name), direct.name)
                for file in table_needs(descriptor):
                    needs[file.name] = file
        return list(needs.values())

    async def _check_target(self, *written: Entry) -> None:
        """Raises ConfigError unless the target is empty, or holds the beginning of this clone."""
        await check_no_log(self.target)
        documents = {entry.slot: encode_entry(entry) for entry in written}
        for slot in await list_slots(self.target):
            if await self.target.get(object_names.checkpoint(slot)) != documents.get(slot):
                raise ConfigError(
                    f"target {self.target.url}",
                    expected="an empty store",
                    found=f"checkpoint {slot}, which is not of this clone",
                    action="choose another URL; a clone never overwrites anything",
                )

    async def _bring(self, need: Need, *, has_log_store: bool) -> tuple[bool, int]:
        """Share or copy an object; returns whether it is shared, and its bytes."""
        # A segment is shared by its place below the stores' own URLs; an encrypted object is bound
        # to its store.
        encrypted = self.origin.cipher is not None or self.target.cipher is not None
        in_log_store = has_log_store and need.name.startswith(object_names.SEGMENTS)
        sharing = self.sharing and not encrypted and not in_log_store
        if sharing and await share(self.origin, self.target, need.name, self.effects):
            size = (await self.target.head(need.name)).size
            _check_size(need, size)
            return True, size
        data = await self._get(need.name)
        _check_size(need, len(data))
        await self.effects.offload.run(_check_content, need.name, data)
        await self.target.put(need.name, data)
        return False, len(data)

    async def _get(self, name: str) -> bytes:
        try:
            return await self.origin.get(name)
        except ObjectNotFoundError as cause:
            raise RestoreError(
                f"object {name} of {self.origin.url}",
                expected="it, as the checkpoint names it",
                found="no such object",
                action="clone a newer checkpoint, or a savepoint, which nothing drops: a job that "
                "runs may have dropped this one meanwhile",
            ) from cause


def _plain(checkpoint: Checkpoint) -> Checkpoint:
    """What was kept for ever in the origin goes like any other checkpoint in the clone.

    But for a canonical one: only as a savepoint does it say that its log is no history.
    """
    if not isinstance(checkpoint, Savepoint) or is_canonical(checkpoint):
        return checkpoint
    return Checkpoint(**{name: getattr(checkpoint, name) for name in Checkpoint.__struct_fields__})


def _check_size(need: Need, size: int) -> None:
    if size < need.size or (need.exact and size > need.size):
        raise _damaged(need.name, f"{need.size} bytes", f"{size} bytes")


def _check_content(name: str, data: bytes) -> None:
    expected = object_names.content_hash_of(name)
    if expected is not None and content_hash(data) != expected:
        raise _damaged(name, f"content of hash {expected}", f"of hash {content_hash(data)}")


def _damaged(name: str, expected: str, found: str) -> CorruptObjectError:
    return CorruptObjectError(
        f"object {name} of the origin",
        expected=expected,
        found=found,
        action="clone another checkpoint; `tidelog inspect --deep` shows which ones are intact",
    )
