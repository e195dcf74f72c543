"""Where everything needed is: the index first, the segments' footers if it does not suffice."""

from dataclasses import dataclass

from tidelog.spark.checkpoint import Checkpoint
from tidelog.spark.entries import Entries, committed_only, indexed
from tidelog.spark.footers import Footers, read_footers
from tidelog.spark.liveness import Assessment, assess
from tidelog.spark.reading import Progress
from tidelog.storage.port import ObjectStore


@dataclass(frozen=True, slots=True)
class Located:
    """What is needed, and what told where it is."""

    assessment: Assessment
    known: Entries
    """All entries: of the index, and of the footers if they were read."""
    footers: Footers | None
    """None when the index was enough."""


async def locate(
    store: ObjectStore,
    checkpoint: Checkpoint,
    *,
    all_footers: bool = False,
    progress: Progress | None = None,
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
