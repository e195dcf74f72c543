"""Pacing: how the files of all tables of a process share the link with its log.

Invariants: over any longer time table uploads take no more than the bandwidth they are given; a
file gives way to checkpoints, but only while its table can still be whole in time; few files are in
memory at once.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from tidelog.changelog.cadence import Cadence
from tidelog.effects import Clock

TRANSFERS: Final = 4
"""Files on their way at a time: on a store that answers slowly one alone leaves the link idle."""
HELD_BYTES: Final = 32 << 20
"""Bytes of files in memory at a time; a file beyond it travels alone."""
PATIENCE_S: Final = 2.0
"""How long a file waits at most for a gap between checkpoints."""
_SMALL_BYTES: Final = 64 << 10
"""Up to this size a transfer tells the store's latency, above it the speed of the link."""


class Pace:
    """A token bucket without a burst: each transfer pays for its bytes before the next one."""

    def __init__(self, clock: Clock, bytes_per_s: float | None) -> None:
        self._clock = clock
        self._rate = bytes_per_s
        self._free_at = clock.monotonic()

    async def spend(self, size: int) -> None:
        """Wait for the transfers before this one, then account for `size` bytes."""
        if self._rate is None:
            return
        now = self._clock.monotonic()
        wait = self._free_at - now
        self._free_at = max(self._free_at, now) + size / self._rate
        if wait > 0:
            await self._clock.sleep(wait)


class Remaining(msgspec.Struct):
    """What of a table is still to be uploaded, and when it is to be there (monotonic seconds)."""

    finish_by: float
    files: int
    bytes: int

    def patience(self, now: float, seconds: float) -> float:
        """How long the next file may wait when the rest takes so many seconds to transfer.

        What time is left is shared by the files that are left: a table that is late waits no more.
        """
        spare = self.finish_by - now - seconds
        return max(0.0, min(PATIENCE_S, spare / max(1, self.files)))


class Speed:
    """How long transfers take: estimates from those before, half old and half the last one."""

    def __init__(self) -> None:
        self._latency_s = 0.03
        self._bytes_per_s = 50e6

    def seconds(self, size: int, transfers: int = 1) -> float:
        """Seconds that `size` bytes take in this many transfers one after the other."""
        return transfers * self._latency_s + size / self._bytes_per_s

    def observed(self, size: int, seconds: float) -> None:
        if size <= _SMALL_BYTES:
            self._latency_s += (seconds - self._latency_s) / 2
        elif seconds > self._latency_s:
            self._bytes_per_s += (size / (seconds - self._latency_s) - self._bytes_per_s) / 2


class Uplink:
    """The link of a process to its stores, as far as it carries table files."""

    def __init__(
        self, clock: Clock, bytes_per_s: float | None = None, limit_bytes: int = HELD_BYTES
    ) -> None:
        self.speed = Speed()
        self.pace = Pace(clock, bytes_per_s)
        self.transfers = 0
        self.held_bytes = 0
        """Files in memory, on their way or waiting for a gap."""
        self.door = asyncio.Lock()
        """First come, first served: a large file is not overtaken for ever by small ones."""
        self.departure = asyncio.Event()
        """Set when a file has left."""
        self._limit_bytes = limit_bytes

    def has_room(self, size: int) -> bool:
        """Whether a file of `size` bytes may be read."""
        if self.transfers == 0:
            return True
        return self.transfers < TRANSFERS and self.held_bytes + size <= self._limit_bytes


class UploadSlots:
    """The way of a job's table files to the store, beside its checkpoints; one for all subtasks.

    Jobs of one process share the `link`.
    """

    def __init__(
        self, clock: Clock, cadence: Cadence | None = None, link: Uplink | None = None
    ) -> None:
        self.link = link or Uplink(clock)
        self._clock = clock
        self._cadence = cadence

    @asynccontextmanager
    async def slot(self, size: int, remaining: Remaining | None) -> AsyncIterator[None]:
        """Within, a file of `size` bytes may be read and put.

        A file of a materialization keeps to the pace and out of the way of checkpoints; with None
        it is part of a checkpoint and hurries.
        """
        link = self.link
        if remaining is not None:
            await link.pace.spend(size)
        async with link.door:
            while not link.has_room(size):
                link.departure.clear()
                await link.departure.wait()
            link.transfers += 1
            link.held_bytes += size
        try:
            if remaining is not None:
                await self._gap(size, remaining)
            started = self._clock.monotonic()
            yield
            link.speed.observed(size, self._clock.monotonic() - started)
            if remaining is not None:
                remaining.files -= 1
                remaining.bytes -= size
        finally:
            link.transfers -= 1
            link.held_bytes -= size
            link.departure.set()

    async def _gap(self, size: int, remaining: Remaining) -> None:
        """Wait for a moment that disturbs no checkpoint, as long as the table has time."""
        if self._cadence is None:
            return
        speed = self.link.speed
        rest = speed.seconds(remaining.bytes, remaining.files + 1)
        patience = remaining.patience(self._clock.monotonic(), rest)
        await self._cadence.room_for(speed.seconds(size), patience)
