"""Bandwidth that transfers share.

Invariants: the sum of all transfers never exceeds the rate of the link, nor one of them that of its
connection; n transfers at once get an equal share each, for they take turns in chunks of 256 KiB,
so a small one waits for one chunk of each of the others at most.
"""

from typing import Final

from tidelog.effects import Clock

CHUNK: Final = 256 * 1024
_MB: Final = 1e6


class Bandwidth:
    """A link that transfers reserve chunk by chunk on one time line; 0 MB/s is no limit."""

    def __init__(self, clock: Clock, mb_per_s: float, connection_mb_per_s: float) -> None:
        self._clock = clock
        self._link = _seconds_per_byte(mb_per_s)
        self._slowest = max(self._link, _seconds_per_byte(connection_mb_per_s))
        self._free_at = 0.0
        self.moved_bytes = 0
        """All that is through, up and down, chunk by chunk."""

    async def transfer(self, size: int) -> None:
        """Return when `size` bytes are through."""
        if self._slowest == 0:
            self.moved_bytes += size
            return
        # A chunk starts when the one before it ended, not when this task woke up from it: late
        # wake-ups must not eat bandwidth.
        ended = self._clock.monotonic()
        while size > 0:
            chunk = min(size, CHUNK)
            started = max(ended, self._free_at)
            self._free_at = started + chunk * self._link
            ended = started + chunk * self._slowest
            size -= chunk
            await self._clock.sleep(max(0.0, ended - self._clock.monotonic()))
            self.moved_bytes += chunk


def _seconds_per_byte(mb_per_s: float) -> float:
    return 1 / (mb_per_s * _MB) if mb_per_s else 0.0
