"""What the log costs: the objects that it and the manifests are written as.

Invariants: objects are counted over the stretches, where none is missed; how long one lives follows
from how many are stored now (Little's law), so right after the start of a job, before its first
checkpoint was dropped, the bill is too low, never too high.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean

from tidelog.estimate.usage import Flow, Reads, Usage
from tidelog.overhead.facts import Snapshot, Stored
from tidelog.overhead.stretches import seconds


def log_usage(found: Sequence[Sequence[Snapshot]], stored: Stored) -> Usage | None:
    """Segments and manifests as flows of objects; None without a time to divide by."""
    span = seconds(found)
    if not span:
        return None
    manifests = [snapshot.manifest_bytes for stretch in found for snapshot in stretch]
    flows = (
        _flow("segment", _segments_written(found) / span, stored.segments),
        _flow("manifest", (len(manifests) - len(found)) / span, dict(enumerate(manifests))),
    )
    return Usage(tuple(flow for flow in flows if flow is not None), Reads())


def _segments_written(found: Sequence[Sequence[Snapshot]]) -> int:
    """Segments that a checkpoint of a stretch names and none before it."""
    written = 0
    for stretch in found:
        seen = set(stretch[0].segments)
        for _, snapshot in pairwise(stretch):
            written += len(snapshot.segments - seen)
            seen |= snapshot.segments
    return written


def _flow(kind: str, per_s: float, sizes: Mapping[str, int] | Mapping[int, int]) -> Flow | None:
    if not per_s or not sizes:
        return None
    return Flow(kind, per_s, fmean(sizes.values()), len(sizes) / per_s)
