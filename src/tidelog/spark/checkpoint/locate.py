"""Where every changelog that is needed is (the index has it, else the footers of segments), and its
bytes, read with few requests.

Invariants: an entry made of footers has all its pieces, from number 0 to the last, or there is
none; a damaged segment is named and hides no other; bytes that are returned passed every checksum
and carry the name that was asked for.
"""

import asyncio
from collections import OrderedDict, defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from tidelog.concurrency import Progress, discard, gather_bounded, no_progress
from tidelog.errors import CorruptObjectError, ObjectNotFoundError, RestoreError, TidelogError
from tidelog.spark.checkpoint.checkpoint import UNREADABLE, Entries, QueryCheckpoint, segment_object
from tidelog.spark.checkpoint.liveness import Assessment, assess
from tidelog.spark.format.damage import BRING_BACK
from tidelog.spark.format.index import ChangelogPiece, IndexEntry
from tidelog.spark.format.names import ChangelogName
from tidelog.spark.format.segment import (
    FooterEntry,
    framing_bytes,
    read_content,
    read_footer_at,
    read_segment,
)
from tidelog.storage.port import ObjectStore

CACHE_BYTES = 128 << 20


async def read_footers(
    store: ObjectStore, segments: Mapping[str, int], progress: Progress = no_progress
) -> tuple[Entries, dict[str, TidelogError]]:
    """Where each complete changelog lies by the footers of segments, given their lengths in bytes;
    and the objects whose footer cannot be read, by name. One or two requests each.
    """
    damaged: dict[str, TidelogError] = {}
    pieces: dict[ChangelogName, list[tuple[str, FooterEntry]]] = defaultdict(list)

    async def read(segment: str) -> None:
        where = segment_object(segment)
        try:
            for entry in await read_footer_at(store, where, segments[segment]):
                pieces[entry.name].append((segment, entry))
        except ObjectNotFoundError:
            pass  # removed since the listing: nothing needed it
        except UNREADABLE as error:
            damaged[where] = error

    await gather_bounded(sorted(segments), read, progress)
    entries: dict[ChangelogName, IndexEntry] = {}
    for name, located_pieces in pieces.items():
        if (assembled_entry := assembled(name, located_pieces)) is not None:
            entries[name] = assembled_entry
    return entries, damaged


def assembled(
    name: ChangelogName, located_pieces: Sequence[tuple[str, FooterEntry]]
) -> IndexEntry | None:
    """The index entry that pieces of a changelog make; None if one is missing."""
    # An upload whose answer was lost may be there twice, under two names: either will do.
    in_order = sorted(located_pieces, key=lambda piece: piece[0])
    pieces = {e.piece: ChangelogPiece(segment, e.offset, e.length) for segment, e in in_order}
    total = max(entry.pieces for _, entry in located_pieces)
    if total == 0 or pieces.keys() != set(range(total)):
        return None
    content_bytes = sum(piece.length - framing_bytes(name) for piece in pieces.values())
    return IndexEntry(name, content_bytes, tuple(map(pieces.__getitem__, range(total))))


@dataclass(frozen=True, slots=True)
class Located:
    """What a checkpoint needs, and the entries that say where it is."""

    assessment: Assessment
    entries: Entries
    """All entries: of the index, and of the footers if they were read."""
    damaged_footers: Mapping[str, TidelogError] | None
    """Segments whose footer cannot be read, by object; None when the index was enough."""


async def locate(
    store: ObjectStore,
    checkpoint: QueryCheckpoint,
    *,
    all_footers: bool = False,
    progress: Progress = no_progress,
) -> Located:
    """Find every changelog that is needed; reads footers if the index lacks one or is damaged.

    `all_footers` reads them in any case. Raises what the store raises.
    """
    assessment = assess(checkpoint, checkpoint.indexed)
    enough = not (assessment.lost or checkpoint.damaged or all_footers)
    if enough or not checkpoint.segment_bytes:
        return Located(assessment, checkpoint.indexed, None)
    entries, damaged = await read_footers(store, checkpoint.segment_bytes, progress)
    newest = -1 if checkpoint.newest is None else checkpoint.newest
    # Without attempts that were not committed, as far as commits say.
    committed = {
        name: entry
        for name, entry in entries.items()
        if name.version <= newest + 1 and checkpoint.names(name)
    }
    all_entries = {**committed, **checkpoint.indexed}
    return Located(assess(checkpoint, all_entries), all_entries, damaged)


class ChangelogReader:
    """Reads changelogs by their index entries; a segment is fetched whole and kept for others.

    Invariant: it holds at most `CACHE_BYTES` of segments besides those that are being read.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._segments: OrderedDict[str, asyncio.Task[bytes]] = OrderedDict()

    async def read(self, entry: IndexEntry) -> bytes:
        """The content of a changelog; raises as `content_of`, RestoreError for a lost segment."""
        return await content_of(entry, partial(self._block, entry))

    async def close(self) -> None:
        """End what is being read."""
        await discard(self._segments.values())
        self._segments.clear()

    async def _block(self, entry: IndexEntry, piece: ChangelogPiece) -> bytes:
        segment = piece.segment
        task = self._segments.get(segment)
        if task is None:
            task = asyncio.ensure_future(read_segment(self._store, segment_object(segment)))
            self._segments[segment] = task
        self._segments.move_to_end(segment)
        try:
            data = await asyncio.shield(task)
        except ObjectNotFoundError as cause:
            raise RestoreError(
                f"segment {segment_object(segment)}",
                expected=f"an object with changelog {entry.name.path}",
                found="nothing",
                action=BRING_BACK,
                retry_safe=False,
            ) from cause
        self._evict()
        return data[piece.offset : piece.offset + piece.length]

    def _evict(self) -> None:
        read = {
            name: len(task.result())
            for name, task in self._segments.items()
            if task.done() and not task.cancelled() and task.exception() is None
        }
        excess = sum(read.values()) - CACHE_BYTES
        for name, size in read.items():
            if excess <= 0:
                return
            del self._segments[name]
            excess -= size


async def content_of(
    entry: IndexEntry, read: Callable[[ChangelogPiece], Awaitable[bytes]]
) -> bytes:
    """The content of a changelog; `read` gets the bytes of its pieces.

    Raises CorruptObjectError (truncated, damaged, or of another changelog), FormatVersionError, and
    what `read` raises.
    """
    parts = []
    for number, piece in enumerate(entry.pieces):
        block = await read(piece)
        pieces = len(entry.pieces) if number == len(entry.pieces) - 1 else 0
        parts.append(read_content(block, entry.name, number, pieces, _where(piece)))
    content = b"".join(parts)
    if len(content) != entry.bytes:
        raise CorruptObjectError(
            f"changelog {entry.name.path} in {', '.join(map(_where, entry.pieces))}",
            expected=f"{entry.bytes} bytes, as its index entry says",
            found=f"{len(content)}",
            action=BRING_BACK,
            retry_safe=False,
        )
    return content


def _where(piece: ChangelogPiece) -> str:
    return f"{segment_object(piece.segment)} at byte {piece.offset}"
