"""Where every changelog that is needed is: the index says it, else the footers of segments.

Invariants: an entry made of footers has all its pieces, from number 0 to the last, or there is
none; a damaged segment is named and hides no other.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tidelog.concurrency import Progress, gather_bounded, no_progress
from tidelog.errors import ObjectNotFoundError, TidelogError
from tidelog.spark.checkpoint.checkpoint import (
    SEGMENTS,
    Checkpoint,
    Entries,
    committed_only,
    indexed,
)
from tidelog.spark.checkpoint.liveness import Assessment, assess
from tidelog.spark.checkpoint.reading import UNREADABLE
from tidelog.spark.format.block import framing_bytes
from tidelog.spark.format.index import IndexEntry, Piece
from tidelog.spark.format.names import ChangelogName
from tidelog.spark.format.segment import FooterEntry, read_footer_at
from tidelog.storage.port import ObjectStore


@dataclass(slots=True)
class Footers:
    """What the segments hold."""

    entries: dict[ChangelogName, IndexEntry] = field(default_factory=dict)
    """Where each complete changelog lies, by its name."""
    damaged: dict[str, TidelogError] = field(default_factory=dict)
    """Segments whose footer cannot be read, by the name of the object."""


async def read_footers(
    store: ObjectStore, segments: Mapping[str, int], progress: Progress = no_progress
) -> Footers:
    """Read the footers of segments, given their lengths in bytes; one or two requests each."""
    footers = Footers()
    pieces: dict[ChangelogName, list[tuple[str, FooterEntry]]] = defaultdict(list)

    async def read(segment: str) -> None:
        where = SEGMENTS + segment
        try:
            for entry in await read_footer_at(store, where, segments[segment]):
                pieces[entry.name].append((segment, entry))
        except ObjectNotFoundError:
            pass  # removed since the listing: nothing needed it
        except UNREADABLE as error:
            footers.damaged[where] = error

    await gather_bounded(sorted(segments), read, progress)
    for name, found in pieces.items():
        entry = assembled(name, found)
        if entry is not None:
            footers.entries[name] = entry
    return footers


def assembled(name: ChangelogName, found: Sequence[tuple[str, FooterEntry]]) -> IndexEntry | None:
    """The index entry that pieces of a changelog make; None if one is missing."""
    # An upload whose answer was lost may be there twice, under two names: either will do.
    by_number = {entry.piece: (segment, entry) for segment, entry in sorted(found, key=_segment)}
    total = max(entry.pieces for _, entry in found)
    if total == 0 or set(by_number) != set(range(total)):
        return None
    ordered = [by_number[number] for number in range(total)]
    return IndexEntry(
        name=name,
        bytes=sum(entry.length - framing_bytes(name) for _, entry in ordered),
        pieces=tuple(Piece(segment, entry.offset, entry.length) for segment, entry in ordered),
    )


def _segment(found: tuple[str, FooterEntry]) -> str:
    return found[0]


@dataclass(frozen=True, slots=True)
class Located:
    """What a checkpoint needs, and the entries that say where it is."""

    assessment: Assessment
    known: Entries
    """All entries: of the index, and of the footers if they were read."""
    footers: Footers | None
    """The segments' footers; None when the index was enough."""


async def locate(
    store: ObjectStore,
    checkpoint: Checkpoint,
    *,
    all_footers: bool = False,
    progress: Progress = no_progress,
) -> Located:
    """Find every changelog that is needed; reads footers if the index lacks one or
    is damaged.

    `all_footers` reads them in any case. Raises what the store raises.
    """
    known = indexed(checkpoint)
    assessment = assess(checkpoint, known)
    enough = not (assessment.lost or checkpoint.damaged or all_footers)
    if enough or not checkpoint.segments:
        return Located(assessment, known, None)
    footers = await read_footers(store, checkpoint.segments, progress)
    known = {**committed_only(checkpoint, footers.entries), **known}
    return Located(assess(checkpoint, known), known, footers)
