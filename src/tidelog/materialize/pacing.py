"""Pacing: table uploads are spread over time.

Invariant: over any longer time table uploads take no more than their share of bandwidth.
"""

from tidelog.effects import Clock


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
