"""Where a job, a fork or a command takes a checkpoint from: `URL@SLOT`, `URL@NAME`, `URL@latest`.

Invariant: a name means the savepoint of that name in the newest slot, and never a number.
"""

from dataclasses import dataclass

from tidelog.catalog.inventory import find_checkpoint
from tidelog.checkpoint.coordinator import check_name
from tidelog.checkpoint.manifest import Checkpoint, Savepoint
from tidelog.checkpoint.slots import list_slots, read_slot
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
"""A slot, the name of a savepoint, or None for the newest checkpoint."""


@dataclass(frozen=True, slots=True)
class Origin:
    """A checkpoint in some store."""

    url: str
    """Empty: the job's own store."""
    place: CheckpointName


def parse_origin(text: str, *, own_store: bool = False) -> Origin:
    """Read `URL@SLOT`, `URL@NAME` or `URL@latest`; raises ConfigError.

    Where the job has a store of its own, `own_store`, the URL may be missing.
    """
    check_url("origin", text)  # the @ before a host is not that before a checkpoint
    url, at, place = text.rpartition("@")
    if not at or not (url or own_store) or not place or "/" in place:
        raise ConfigError(
            f"origin {text!r}",
            expected="URL@SLOT, URL@NAME of a savepoint, or URL@latest",
            action="name a checkpoint that `tidelog checkpoints list URL` shows",
        )
    return Origin(url, parse_place(place))


def parse_place(text: str) -> CheckpointName:
    """Read a slot's number, a savepoint's name or `latest`; raises ConfigError."""
    if text == "latest":
        return None
    return Slot(int(text)) if text.isdecimal() else check_name(text)


async def find(store: ObjectStore, place: CheckpointName) -> Checkpoint:
    """The checkpoint there; raises as `find_checkpoint`, and ObjectNotFoundError for a name."""
    if not isinstance(place, str):
        return await find_checkpoint(store, place)
    names: list[str] = []
    damaged: TidelogError | None = None
    for slot in reversed(await list_slots(store)):
        try:
            entry = await read_slot(store, slot)
        except ObjectNotFoundError:
            continue  # dropped since the listing
        except (CorruptObjectError, FormatVersionError) as error:
            damaged = damaged or error
            continue
        if isinstance(entry, Savepoint):
            if entry.name == place:
                return entry
            names.append(entry.name)
    if damaged is not None:  # it may be the one that is looked for
        raise damaged
    raise ObjectNotFoundError(
        f"savepoint {place!r} of store {store.url}",
        expected=f"one of {', '.join(sorted(names))}" if names else "a savepoint",
        found="none of that name",
        action="choose one that `tidelog checkpoints list URL` shows",
    )
