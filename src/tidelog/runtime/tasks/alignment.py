"""Barrier alignment: a pure decision per barrier (Carbone et al., 2015; unaligned: FLIP-76).

Invariants:
- exactly once, aligned: after barrier n arrived on a channel, nothing of that channel is processed
  until n arrived on all;
- exactly once, overtaking: the snapshot is taken before n was reached on all channels; from then on
  nothing is blocked, and what comes before n on the others is in-flight data of n;
- a channel that stays aligned is never overtaken: n is reached on all of those first;
- at least once: nothing is ever blocked, barriers are counted;
- where a channel ended every barrier is reached: none will come.
With one channel aligned exactly once and at least once are the same.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from tidelog.ids import CheckpointId
from tidelog.runtime.channels.messages import Barrier


@dataclass(frozen=True, slots=True)
class Switching:
    """When an aligned checkpoint that may switch becomes an unaligned one; times in seconds.

    The three stages (FLINK-19681, FLINK-23041, FLINK-27251): inside a task that aligns for too
    long; by the start time that the barrier carries, so that the time is that of the whole
    checkpoint and not of each task; in output queues, where a barrier waits unseen.
    """

    timeout: float

    def deadline(self, barrier: Barrier, seen_at: float) -> float | None:
        """When to switch a barrier that was first seen, or sent, at `seen_at`; None: never."""
        if barrier.order == "unaligned":
            return seen_at
        return barrier.started + self.timeout if barrier.order == "may-switch" else None


@dataclass(frozen=True, slots=True)
class Aligned:
    """What to do about a barrier."""

    block: bool = False
    """Deliver nothing more from the channel it was reached on."""
    unblock: bool = False
    """Deliver from all channels again."""
    complete: bool = False
    """The barrier was reached on all channels: take the snapshot now."""
    overtake: bool = False
    """Take the snapshot now; what is before the barrier in channels is in-flight data."""


_IGNORE = Aligned()
_NO_CHECKPOINT = CheckpointId(-1)


class Alignment:
    """The state of one task's alignment."""

    def __init__(
        self,
        channels: int,
        *,
        exactly_once: bool,
        switching: Switching | None = None,
        stay_aligned: Iterable[int] = (),
    ) -> None:
        self._channels = channels
        self._exactly_once = exactly_once
        self._switching = switching if exactly_once else None
        self._stay_aligned = frozenset(stay_aligned)
        self._reached: set[int] = set()
        self._ended_channels: set[int] = set()
        self.seen_at = 0.0
        """When the first barrier of the newest checkpoint was seen."""
        self._deadline: float | None = None
        self._newest = _NO_CHECKPOINT
        self._closed = _NO_CHECKPOINT
        """The newest checkpoint taken or given up here: barriers up to it are late."""

    @property
    def aligning(self) -> CheckpointId | None:
        """The checkpoint whose barriers are awaited."""
        return self._newest if self._newest > self._closed else None

    @property
    def deadline(self) -> float | None:
        """When the checkpoint that is aligning may switch, and is to be announced again."""
        return None if self.aligning is None else self._deadline

    @property
    def reached(self) -> frozenset[int]:
        """Channels on which the newest checkpoint's barrier was reached, not overtaking."""
        return frozenset(self._reached)

    def announced(self, barrier: Barrier, now: float) -> Aligned:
        """A barrier is in a channel, perhaps after buffers; also called at the deadline."""
        unblock = self._begin(barrier, now)
        if unblock is None:
            return _IGNORE
        return self._complete_or_switch(Aligned(unblock=unblock), now)

    def ended(self, channel: int, now: float) -> Aligned:
        """Nothing follows on a channel."""
        self._ended_channels.add(channel)
        if self.aligning is None:
            return _IGNORE
        self._reached.add(channel)
        return self._complete_or_switch(_IGNORE, now)

    def barrier(self, channel: int, barrier: Barrier, now: float) -> Aligned:
        """A barrier was reached; one of an older checkpoint is ignored, a newer starts anew."""
        unblock = self._begin(barrier, now)
        if unblock is None:
            return _IGNORE
        self._reached.add(channel)
        waiting = Aligned(block=self._exactly_once, unblock=unblock)
        return self._complete_or_switch(waiting, now)

    def abort(self, checkpoint: CheckpointId) -> Aligned:
        aligning = self.aligning
        self._closed = max(self._closed, checkpoint)
        if aligning is None or checkpoint < aligning:
            return _IGNORE
        return Aligned(unblock=self._exactly_once)

    def _begin(self, barrier: Barrier, now: float) -> bool | None:
        """Whether to unblock channels of an abandoned alignment; None: the barrier is old."""
        checkpoint = barrier.checkpoint
        if checkpoint <= self._closed or checkpoint < self._newest:
            return None
        unblock = False
        if checkpoint > self._newest:
            # A checkpoint given up by the coordinator leaves half an alignment.
            unblock = self.aligning is not None and bool(self._reached) and self._exactly_once
            self._newest = checkpoint
            self._reached = set(self._ended_channels)
            self.seen_at = now
            self._deadline = None
        if self._switching is not None:
            deadline = self._switching.deadline(barrier, now)
            if deadline is not None and (self._deadline is None or deadline < self._deadline):
                self._deadline = deadline
        return unblock

    def _complete_or_switch(self, otherwise: Aligned, now: float) -> Aligned:
        """Take the snapshot when the barrier was reached on all channels, or at the deadline when
        it was reached on all that stay aligned.
        """
        if len(self._reached) == self._channels:
            self._closed = self._newest
            return Aligned(unblock=self._exactly_once, complete=True)
        deadline = self.deadline
        if deadline is None or now < deadline or not self._stay_aligned <= self._reached:
            return otherwise
        self._closed = self._newest
        return Aligned(unblock=True, overtake=True)
