"""Reading a Spark checkpoint: a few LISTs, and a GET per commit and per roll-up.

Invariants: nothing is written; damage to one object is kept with its name and hides no other; an
object that disappears between listing and reading counts as never seen.
"""

import re
from collections.abc import AsyncIterator
from typing import Final

from tidelog.concurrency import Progress, gather_bounded, no_progress
from tidelog.errors import CorruptObjectError, FormatVersionError, ObjectNotFoundError
from tidelog.spark.checkpoint.checkpoint import (
    COMMITS,
    INDEX,
    OFFSETS,
    SEGMENTS,
    STATE,
    Checkpoint,
    Snapshot,
    is_sidecar,
)
from tidelog.spark.checkpoint.commits import read_commit
from tidelog.spark.format.index import IndexDocument, read_index
from tidelog.spark.format.names import ChangelogName, roll_up_name
from tidelog.storage.port import ObjectStore

UNREADABLE: Final = (CorruptObjectError, FormatVersionError)
"""Errors that concern one object and not the store."""

_SNAPSHOT: Final = re.compile(r"(\d+/\d+(?:/[^/]+)?)/(\d+)(?:_([^/]+))?\.zip")


async def read_checkpoint(store: ObjectStore, progress: Progress = no_progress) -> Checkpoint:
    """Read the checkpoint at a store's root; raises what the store raises.

    Damaged commits, index lines and roll-ups stand in `damaged`; segments are only listed.
    """
    checkpoint = Checkpoint(store.url)
    checkpoint.offsets = sorted(await _numbered(store, OFFSETS, checkpoint))
    batches = sorted(await _numbered(store, COMMITS, checkpoint))
    windows = [name async for name in _listed(store, INDEX, checkpoint) if name.endswith(".json")]

    async def read(place: int | str) -> None:
        if isinstance(place, int):
            await _read_commit(store, checkpoint, place)
        else:
            await _read_roll_up(store, checkpoint, place)

    places: list[int | str] = [*batches, *windows]
    await gather_bounded(places, read, progress)
    checkpoint.commits = dict(sorted(checkpoint.commits.items()))
    checkpoint.roll_ups = dict(sorted(checkpoint.roll_ups.items()))
    # Last: what the index of a running query names is there by now.
    await _list_segments(store, checkpoint)
    await _list_state(store, checkpoint)
    return checkpoint


async def _list_state(store: ObjectStore, checkpoint: Checkpoint) -> None:
    async for info in store.list(STATE):
        checkpoint.state_files.add(info.name)
        relative = info.name.removeprefix(STATE)
        name = ChangelogName.parse(relative)
        match = _SNAPSHOT.fullmatch(relative)
        if name is not None:
            checkpoint.changelogs[name] = info.size
        elif match is not None:
            checkpoint.snapshots.append(Snapshot(match[1], int(match[2]), match[3]))
        elif is_sidecar(relative):
            checkpoint.sidecars.add(info.name)


async def _list_segments(store: ObjectStore, checkpoint: Checkpoint) -> None:
    async for info in store.list(SEGMENTS):
        leaf = info.name.removeprefix(SEGMENTS)
        if leaf.endswith(".seg") and not is_sidecar(leaf):
            checkpoint.segments[leaf] = info.size


async def _numbered(store: ObjectStore, prefix: str, checkpoint: Checkpoint) -> list[int]:
    leaves = [name.removeprefix(prefix) async for name in _listed(store, prefix, checkpoint)]
    return [int(leaf) for leaf in leaves if leaf.isdecimal()]


async def _listed(store: ObjectStore, prefix: str, checkpoint: Checkpoint) -> AsyncIterator[str]:
    """Names below a prefix; checksum files of Hadoop's are put aside."""
    async for info in store.list(prefix):
        if is_sidecar(info.name):
            checkpoint.sidecars.add(info.name)
        else:
            yield info.name


async def _read_commit(store: ObjectStore, checkpoint: Checkpoint, batch: int) -> None:
    name = f"{COMMITS}{batch}"
    try:
        commit = read_commit(batch, await store.get(name), name)
    except ObjectNotFoundError:
        return  # purged since the listing
    except UNREADABLE as error:
        checkpoint.damaged[name] = error
        return
    checkpoint.commits[batch] = commit
    if commit.damage is not None:
        checkpoint.damaged[name] = commit.damage


async def _read_roll_up(store: ObjectStore, checkpoint: Checkpoint, name: str) -> None:
    try:
        document = read_index((await store.get(name)).decode(errors="replace").strip(), name)
    except ObjectNotFoundError:
        return  # removed since the listing
    except UNREADABLE as error:
        checkpoint.damaged[name] = error
        return
    if name == INDEX + roll_up_name(document.first):
        checkpoint.roll_ups[document.first] = document
    else:
        checkpoint.damaged[name] = _misplaced(name, document)


def _misplaced(name: str, document: IndexDocument) -> CorruptObjectError:
    return CorruptObjectError(
        f"object {name} is damaged",
        expected="the index of the batches in its name",
        found=f"that of batches {document.first} to {document.last}",
        action="write it again with `tidelog spark rebuild-index`",
    )
