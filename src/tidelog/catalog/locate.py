"""Where a job, a clone or a command takes a checkpoint from: `URL@N`, `URL@NAME`, `URL@latest`.

Invariant: a name means the savepoint of that name in the newest slot, and never a number.
"""

from dataclasses import dataclass

from tidelog.catalog.inventory import find_checkpoint
from tidelog.checkpoint.decisions import check_name
from tidelog.checkpoint.manifest import Checkpoint, Entry, Savepoint
from tidelog.checkpoint.slots import list_slots, named_checkpoints, no_such_checkpoint, read_slot
from tidelog.errors import (
    ConfigError,
    CorruptObjectError,
    FormatVersionError,
    ObjectNotFoundError,
    TidelogError,
)
from tidelog.ids import Slot
from tidelog.storage.errors import check_url
from tidelog.storage.port import ObjectStore

CheckpointName = Slot | str | None
"""A number, the name of a savepoint, or None for the newest checkpoint."""


@dataclass(frozen=True, slots=True)
class Origin:
    """A checkpoint in some store."""

    url: str
    """Empty: the job's own store."""
    checkpoint: CheckpointName


def parse_origin(text: str, *, own_store: bool = False) -> Origin:
    """Read `URL@N`, `URL@NAME` or `URL@latest`; raises ConfigError.

    Where the job has a store of its own, `own_store`, the URL may be missing.
    """
    check_url("origin", text)  # the @ before a host is not that before a checkpoint
    url, separator, checkpoint = text.rpartition("@")
    if not separator or not (url or own_store) or not checkpoint or "/" in checkpoint:
        raise ConfigError(
            f"origin {text!r}",
            expected="URL@N, URL@NAME of a savepoint, or URL@latest",
            action="name a checkpoint that `tidelog checkpoints list URL` shows",
        )
    return Origin(url, parse_checkpoint(checkpoint))


def parse_checkpoint(text: str) -> CheckpointName:
    """Read a checkpoint's number, a savepoint's name or `latest`; raises ConfigError."""
    if text == "latest":
        return None
    return Slot(int(text)) if text.isdecimal() else check_name(text)


async def find(store: ObjectStore, checkpoint: CheckpointName) -> Checkpoint:
    """The checkpoint of a number or name; raises as `find_checkpoint`, for a name
    CheckpointNotFoundError.
    """
    if not isinstance(checkpoint, str):
        return await find_checkpoint(store, checkpoint)
    entries: list[Entry] = []
    damaged: TidelogError | None = None
    for slot in reversed(await list_slots(store)):
        try:
            entry = await read_slot(store, slot)
        except ObjectNotFoundError:
            continue  # dropped since the listing
        except (CorruptObjectError, FormatVersionError) as error:
            damaged = damaged or error
            continue
        if isinstance(entry, Savepoint) and entry.name == checkpoint:
            return entry
        entries.append(entry)
    if damaged is not None:  # it may be the one that is looked for
        raise damaged
    existing = named_checkpoints(entries)
    raise no_such_checkpoint(f"savepoint {checkpoint!r} of store {store.url}", existing)
