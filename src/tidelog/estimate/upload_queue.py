"""The uploader's queue in virtual time: when what is flushed leaves in a segment.

Invariants: every byte that is queued leaves once; the rules are those of `tidelog.dstl.uploader`:
by size, by age, ahead of a checkpoint, and at the barrier what is too large for the manifest.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Final

from tidelog.dstl.cadence import UPLOAD_LEAD_S
from tidelog.dstl.uploader import UploadConfig

_CYCLES: Final = 256
"""Cycles after which the queue is taken to repeat itself, if it was not seen to."""
_SMALL: Final = 1 / 16
"""Share of the limit for tails below which cycles are not followed but divided out."""


@dataclass(frozen=True, slots=True)
class Burst:
    """What all subtasks of a process flush at one moment."""

    at: float
    raw: float
    stored: float
    largest: float
    """Raw bytes of one block."""
    times: float = 1.0
    sources: bool = False


@dataclass(frozen=True, slots=True)
class Followed:
    """What left the queue; of one cycle, on average, when `follow` returns it."""

    segments: float = 0.0
    bytes: float = 0.0
    """Within segments, which add their own headers."""
    inline: float = 0.0
    """Bytes of tails that stayed for the manifest."""
    tail: float = 0.0
    """Bytes uploaded at a barrier."""
    shared: float = 0.0
    """Of the bytes, those whose segment also holds blocks of sources."""

    def since(self, before: "Followed", cycles: int) -> "Followed":
        """An average cycle of those since `before`."""
        return Followed(
            (self.segments - before.segments) / cycles,
            (self.bytes - before.bytes) / cycles,
            (self.inline - before.inline) / cycles,
            (self.tail - before.tail) / cycles,
            (self.shared - before.shared) / cycles,
        )


@dataclass(slots=True)
class _Queue:
    """The uploader's queue, in virtual time."""

    config: UploadConfig
    lead_at: float
    raw: float = 0.0
    stored: float = 0.0
    oldest: float = 0.0
    """When the first of it was flushed that no manifest holds."""
    inlined: bool = False
    """A manifest holds all of it."""
    sources: bool = False
    left: Followed = Followed()

    @property
    def state(self) -> tuple[float, float]:
        """What decides how the queue goes on."""
        return round(self.raw, 3), 0.0 if self.inlined or not self.raw else round(self.oldest, 6)

    def pass_time(self, now: float) -> None:
        """Upload what is due before `now`."""
        if self.inlined or self.raw <= self.config.inline_bytes:
            return
        due = self.oldest + self.config.max_age
        if self.oldest < self.lead_at:
            due = min(due, self.lead_at)
        if due < now:
            self.upload()

    def add(self, burst: Burst) -> None:
        """Take over the blocks of a flush; full segments leave at once."""
        if self.inlined or not self.raw:
            self.oldest = burst.at
        self.inlined = False
        self.raw += burst.raw
        self.stored += burst.stored
        self.sources |= burst.sources
        limit = self.config.segment_bytes
        if self.raw < limit:
            return
        # Blocks come one after the other: a segment is full with the block that fills it.
        size = ceil(limit / burst.largest) * burst.largest
        full = max(1, int(self.raw // size))
        rest = max(0.0, self.raw - full * size)
        self._count(full, self.stored * (1 - rest / self.raw))
        self.stored *= rest / self.raw
        self.raw, self.oldest = rest, burst.at

    def barrier(self) -> None:
        """Answer a checkpoint: a small tail stays for the manifest, another one is uploaded."""
        small = self.stored <= self.config.inline_bytes
        inline, tail = (self.stored, 0.0) if small else (0.0, self.stored)
        self.left = replace(self.left, inline=self.left.inline + inline, tail=self.left.tail + tail)
        if small:
            self.inlined = True
        else:
            self.upload()

    def upload(self) -> None:
        """Everything queued becomes one segment."""
        if self.raw:
            self._count(1, self.stored)
        self.raw = self.stored = 0.0
        self.inlined = False

    def _count(self, segments: float, stored: float) -> None:
        shared = stored if self.sources else 0.0
        self.left = replace(
            self.left,
            segments=self.left.segments + segments,
            bytes=self.left.bytes + stored,
            shared=self.left.shared + shared,
        )
        self.sources = False

    def fill(self, burst: Burst) -> None:
        """Many equal flushes that leave in full segments."""
        segments = burst.raw * burst.times / self.config.segment_bytes
        self._count(segments, burst.stored * burst.times)

    def next_cycle(self, cycle_s: float) -> None:
        """The queue goes on; its clock starts again."""
        self.oldest -= cycle_s


def follow(bursts: Sequence[Burst], config: UploadConfig, cycle_s: float) -> Followed:
    """Play cycles of `cycle_s` seconds, whose last burst is the one at the barrier."""
    raw = sum(burst.raw * burst.times for burst in bursts)
    stored = sum(burst.stored * burst.times for burst in bursts)
    larger = max(raw, stored)
    if larger < _SMALL * config.inline_bytes:
        cycles = config.inline_bytes // larger + 1
        return Followed(1 / cycles, stored, stored * (cycles - 1) / 2, 0.0, stored)
    queue = _Queue(config, cycle_s - UPLOAD_LEAD_S)
    seen: dict[tuple[float, float], tuple[int, Followed]] = {}
    for cycle in range(_CYCLES):
        if queue.state in seen:
            since, before = seen[queue.state]
            return queue.left.since(before, cycle - since)
        seen[queue.state] = cycle, queue.left
        for burst in bursts:
            _play(queue, burst)
        queue.barrier()
        queue.next_cycle(cycle_s)
    return queue.left.since(Followed(), _CYCLES)


def _play(queue: _Queue, burst: Burst) -> None:
    if burst.times > 1:
        # So many flushes a cycle that each segment is full: only their sum matters.
        queue.fill(burst)
        return
    queue.pass_time(burst.at)
    queue.add(burst)
