"""What the uploader makes of the flushes of one process: segments, and tails within manifests.

Invariants: every byte that is flushed is uploaded once, in the end. All subtasks of a process flush
at once; where they do not, there are more segments than this.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, exp
from typing import Final

import msgspec

from tidelog.changelog.block import HEADER
from tidelog.changelog.segment import HEADER_BYTES, TRAILER_BYTES, Entry
from tidelog.cost.model.flushes import Flush, flushes, rows_split
from tidelog.cost.model.settings import Settings
from tidelog.cost.model.upload_queue import Burst, follow
from tidelog.cost.model.workload import Workload
from tidelog.ids import KeyGroup, SeqNo

_FOOTER_ENTRY: Final = len(
    msgspec.msgpack.encode(
        Entry("process", 3, 1, 1 << 20, 1 << 16, SeqNo(1 << 31), 10_000, KeyGroup(0), KeyGroup(127))
    )
)
_BLOCK_BYTES: Final = HEADER.size + _FOOTER_ENTRY
"""What a block costs besides its payload."""
SOURCE_CHANGE_BYTES: Final = 64
"""A source's change: the position of a split, a short row that is written once per flush."""


@dataclass(frozen=True, slots=True)
class LogCycle:
    """The log of one process between two checkpoints, on average."""

    updates: float
    changes: float
    """Rows that are logged: updates after the write buffer has combined them."""
    segments: float
    segment_bytes: float
    """Bytes of all segments of the cycle."""
    inline_bytes: float
    """Bytes of the tail in a manifest, as blocks."""
    waited_s: float
    """Seconds from a barrier until the log before it is durable, or ready for the manifest."""
    presence: float
    """Share of the subtasks with keyed state that a segment holds something of."""
    shared: float
    """Share of the bytes whose segment also holds something of sources."""

    @property
    def combine(self) -> float:
        """Updates per change, at least 1."""
        return max(1.0, self.updates / self.changes)


@lru_cache(maxsize=1_024)
def log_cycle(workload: Workload, settings: Settings, cycle_s: float) -> LogCycle:
    """What one process logs and uploads in a cycle of `cycle_s` seconds."""
    processes = settings.processes
    found = flushes(workload, settings.parallelism, settings.flush, cycle_s)
    bursts = _bursts(workload, settings, found, cycle_s)
    flushed = sum(flush.rows * flush.times for flush in found) / processes
    # The flushes of materializations come on top; their rows travel with those around them.
    split = rows_split(workload, found) * cycle_s / settings.materialize.interval / processes
    updates = workload.writes_per_s * cycle_s / processes
    followed = follow(bursts, settings.upload, cycle_s, settings.link)
    writes = workload.writes_per_s / settings.parallelism * cycle_s / followed.segments
    overhead = followed.segments * (HEADER_BYTES + TRAILER_BYTES)
    return LogCycle(
        updates=updates,
        changes=flushed + split,
        segments=followed.segments,
        segment_bytes=followed.bytes + split * workload.change_bytes + overhead,
        inline_bytes=followed.inline,
        waited_s=followed.waited_s,
        presence=1 - exp(-writes),
        shared=followed.shared / followed.bytes,
    )


def _bursts(
    workload: Workload, settings: Settings, found: Iterable[Flush], cycle_s: float
) -> list[Burst]:
    """Flushes of keyed subtasks and of sources, in order of time."""
    keyed = (_keyed_burst(workload, settings, flush) for flush in found)
    sources = _source_bursts(settings, cycle_s)
    return sorted([*keyed, *sources], key=lambda burst: burst.at)


def _keyed_burst(workload: Workload, settings: Settings, flush: Flush) -> Burst:
    rows = flush.rows / settings.processes
    writes = workload.writes_per_s * flush.span / settings.parallelism
    blocks = settings.keyed_per_process * (1 - exp(-writes))
    raw = rows * workload.raw_change_bytes
    stored = rows * workload.change_bytes + blocks * _BLOCK_BYTES
    return Burst(flush.at, raw, stored, raw / max(blocks, 1e-9), flush.times)


def _source_bursts(settings: Settings, cycle_s: float) -> Iterator[Burst]:
    blocks = settings.sources_per_process
    if not blocks:
        return
    raw = blocks * SOURCE_CHANGE_BYTES
    stored = blocks * (SOURCE_CHANGE_BYTES + _BLOCK_BYTES)
    age = settings.flush.max_age
    # By age, then at the barrier; positions of a busy source are hot, so not ahead of it.
    for number in range(1, min(ceil(cycle_s / age), 10_000)):
        yield Burst(number * age, raw, stored, SOURCE_CHANGE_BYTES, sources=True)
    yield Burst(cycle_s, raw, stored, SOURCE_CHANGE_BYTES, sources=True)
