"""Progress of a restore: bytes fetched, changes replayed, time left."""

from collections.abc import Iterable
from dataclasses import dataclass

from tidelog.checkpoint.manifest import SubtaskState
from tidelog.effects import Clock


@dataclass(slots=True)
class RestoreProgress:
    """Figures of a running restore; the totals are known from the manifest."""

    clock: Clock
    started: float
    total_bytes: int
    total_changes: int
    bytes: int = 0
    changes: int = 0
    seconds: float | None = None
    """How long it took; None until it is done."""

    @classmethod
    def of(cls, clock: Clock, states: Iterable[SubtaskState]) -> "RestoreProgress":
        """Progress over the given subtasks."""
        size = changes = 0
        for state in states:
            materialized = state.materialization
            size += materialized.table_bytes if materialized else 0
            size += sum(r.length for r in state.log)
            changes += state.seqno - state.upto
        return cls(clock, clock.monotonic(), size, changes)

    def fetched(self, size: int) -> None:
        """Account for downloaded bytes."""
        self.bytes += size

    def replayed(self, changes: int) -> None:
        """Account for changes merged."""
        self.changes += changes

    def finish(self) -> None:
        """Everything is restored."""
        self.seconds = self.elapsed_s

    @property
    def fraction(self) -> float:
        """How much is done, between 0 and 1; bytes and changes weigh the same."""
        parts = [(self.bytes, self.total_bytes), (self.changes, self.total_changes)]
        shares = [min(1.0, done / total) for done, total in parts if total]
        return sum(shares) / len(shares) if shares else 1.0

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return self.clock.monotonic() - self.started

    @property
    def eta_s(self) -> float | None:
        """Estimated seconds left; None before there is something to go by."""
        done = self.fraction
        return self.elapsed_s * (1 - done) / done if done > 0 else None
