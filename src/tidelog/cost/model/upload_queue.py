"""The uploader's queue in virtual time: when what is flushed leaves in a segment.

Invariants: every byte that is queued leaves once; the rules are those of
`tidelog.changelog.uploader`: by size, by age, ahead of a checkpoint, and at the barrier what is too
large for the manifest or would overtake a segment that is still on its way.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Final

from tidelog.changelog.cadence import UPLOAD_LEAD_S
from tidelog.changelog.upload_config import UploadConfig
from tidelog.cost.model.settings import Link

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
    """Raw bytes of the largest block."""
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
    waited_s: float = 0.0
    """From a barrier until everything before it is durable, or ready for the manifest."""
    shared: float = 0.0
    """Bytes whose segment also holds blocks of sources."""

    def since(self, before: "Followed", cycles: int) -> "Followed":
        """The average of the cycles since `before`."""
        return Followed(
            (self.segments - before.segments) / cycles,
            (self.bytes - before.bytes) / cycles,
            (self.inline - before.inline) / cycles,
            (self.tail - before.tail) / cycles,
            (self.waited_s - before.waited_s) / cycles,
            (self.shared - before.shared) / cycles,
        )


@dataclass(slots=True)
class _Queue:
    """The uploader's queue, in virtual time."""

    config: UploadConfig
    cycle_s: float
    link: Link
    raw: float = 0.0
    stored: float = 0.0
    oldest: float = 0.0
    """When the oldest bytes that no manifest holds were flushed."""
    inlined: bool = False
    """Whether a manifest holds all that is queued."""
    sources: bool = False
    sent_at: float = 0.0
    """When the link has all bytes of the segments that left."""
    durable_at: float = 0.0
    """When the last segment that left is stored."""
    left: Followed = Followed()

    @property
    def state(self) -> tuple[float, float, float]:
        """What decides how the queue goes on."""
        oldest = 0.0 if self.inlined or not self.raw else round(self.oldest, 6)
        return round(self.raw, 3), oldest, round(max(0.0, self.sent_at), 6)

    def pass_time(self, now: float) -> None:
        """Upload what is due before `now`."""
        if self.inlined or self.raw <= self.config.inline_bytes:
            return
        due = self.oldest + self.config.max_age
        lead_at = self.cycle_s - UPLOAD_LEAD_S
        if self.oldest < lead_at:
            due = min(due, lead_at)
        if due < now:
            self.upload(due)

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
        self._count(full, self.stored * (1 - rest / self.raw), burst.at)
        self.stored *= rest / self.raw
        self.raw, self.oldest = rest, burst.at

    def barrier(self) -> None:
        """Answer a checkpoint: a small tail stays for the manifest, another one is uploaded."""
        now, lingered = self.cycle_s, self.cycle_s + self.config.linger
        # The manifest must not hold what lies behind a segment that may yet fail.
        small = self.stored <= self.config.inline_bytes and self.durable_at <= lingered
        ready_at = lingered if self.raw and not self.inlined else now
        inline, tail = (self.stored, 0.0) if small else (0.0, self.stored)
        if small:
            self.inlined = True
        else:
            self.upload(lingered)
        self.left = replace(
            self.left,
            inline=self.left.inline + inline,
            tail=self.left.tail + tail,
            waited_s=self.left.waited_s + max(ready_at, self.durable_at) - now,
        )

    def upload(self, at: float) -> None:
        """Everything queued becomes one segment."""
        if self.raw:
            self._count(1, self.stored, at)
        self.raw = self.stored = 0.0
        self.inlined = False

    def _count(self, segments: float, stored: float, at: float) -> None:
        arrived = at + self.link.latency_s
        self.sent_at = max(self.sent_at, arrived) + stored / self.link.bytes_per_s
        self.durable_at = max(self.durable_at, self.sent_at)
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
        self._count(segments, burst.stored * burst.times, 0.0)

    def next_cycle(self) -> None:
        """The queue goes on; its clock starts again.

        Where the link is too slow writers wait, so no more than a cycle's bytes are behind.
        """
        self.oldest -= self.cycle_s
        self.sent_at = self.durable_at = min(self.sent_at - self.cycle_s, self.cycle_s)


def follow(bursts: Sequence[Burst], config: UploadConfig, cycle_s: float, link: Link) -> Followed:
    """Play cycles of `cycle_s` seconds, whose last burst is the one at the barrier."""
    raw = sum(burst.raw * burst.times for burst in bursts)
    stored = sum(burst.stored * burst.times for burst in bursts)
    larger = max(raw, stored)
    if larger < _SMALL * config.inline_bytes:
        cycles = config.inline_bytes // larger + 1
        return Followed(1 / cycles, stored, stored * (cycles - 1) / 2, 0.0, config.linger, stored)
    queue = _Queue(config, cycle_s, link)
    seen: dict[tuple[float, float, float], tuple[int, Followed]] = {}
    for cycle in range(_CYCLES):
        if queue.state in seen:
            since, before = seen[queue.state]
            return queue.left.since(before, cycle - since)
        seen[queue.state] = cycle, queue.left
        for burst in bursts:
            _play(queue, burst)
        queue.barrier()
        queue.next_cycle()
    return queue.left.since(Followed(), _CYCLES)


def _play(queue: _Queue, burst: Burst) -> None:
    if burst.times > 1:
        # So many flushes a cycle that each segment is full: only their sum matters.
        queue.fill(burst)
        return
    queue.pass_time(burst.at)
    queue.add(burst)
