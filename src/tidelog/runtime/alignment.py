"""Barrier alignment: a pure decision per barrier (Carbone et al., 2015).

Invariants: exactly once: after barrier n arrived on a channel, nothing of that channel is
processed until n arrived on all; at least once: nothing is ever blocked, barriers are counted.
With one channel both modes are the same.
"""

from dataclasses import dataclass

from tidelog.ids import CheckpointId


@dataclass(frozen=True, slots=True)
class Aligned:
    """What to do about a barrier."""

    block: bool = False
    """Deliver nothing more from the channel it came from."""
    unblock: bool = False
    """Deliver from all channels again."""
    complete: bool = False
    """The barrier arrived on all channels: take the snapshot now."""


_IGNORE = Aligned()
_NO_CHECKPOINT = CheckpointId(-1)


class Alignment:
    """The state of one task's alignment."""

    def __init__(self, channels: int, *, exactly_once: bool) -> None:
        self._channels = channels
        self._exactly_once = exactly_once
        self._arrived: set[int] = set()
        self._newest = _NO_CHECKPOINT
        self._closed = _NO_CHECKPOINT
        """Complete or given up, as are all before it: its late barriers mean nothing."""

    @property
    def aligning(self) -> CheckpointId | None:
        """The checkpoint whose barriers are awaited."""
        return self._newest if self._arrived else None

    def barrier(self, channel: int, checkpoint: CheckpointId) -> Aligned:
        """A barrier arrived; one of an older checkpoint is ignored, a newer one starts anew."""
        if checkpoint <= self._closed or checkpoint < self._newest:
            return _IGNORE
        unblock = False
        if checkpoint > self._newest:
            # A checkpoint given up by the coordinator leaves half an alignment behind.
            unblock = bool(self._arrived) and self._exactly_once
            self._newest = checkpoint
            self._arrived = set()
        self._arrived.add(channel)
        if len(self._arrived) < self._channels:
            return Aligned(block=self._exactly_once, unblock=unblock)
        self._arrived = set()
        self._closed = checkpoint
        return Aligned(unblock=self._exactly_once, complete=True)

    def abort(self, checkpoint: CheckpointId) -> Aligned:
        """The coordinator gave the checkpoint up."""
        self._closed = max(self._closed, checkpoint)
        if not self._arrived or checkpoint < self._newest:
            return _IGNORE
        self._arrived = set()
        return Aligned(unblock=self._exactly_once)
