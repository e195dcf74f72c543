"""Progress of a restore: bytes fetched, changes replayed, and the time of each phase.

Invariant: time in which several subtasks are in one phase counts once, so no phase takes longer
than the restore; phases overlap each other, so their sum may.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from tidelog.changelog.segment import LogRange
from tidelog.checkpoint.manifest import SubtaskState
from tidelog.effects import Clock


@dataclass(slots=True)
class PhaseTimer:
    """Time during which anybody was in a phase: `with timer:`, nested or side by side."""

    clock: Clock
    _passed_s: float = 0.0
    _inside: int = 0
    _since: float = 0.0

    def __enter__(self) -> None:
        if not self._inside:
            self._since = self.clock.monotonic()
        self._inside += 1

    def __exit__(self, *_: object) -> None:
        self._inside -= 1
        if not self._inside:
            self._passed_s += self.clock.monotonic() - self._since

    @property
    def seconds(self) -> float:
        running = self.clock.monotonic() - self._since if self._inside else 0.0
        return self._passed_s + running


class RestoreTimings:
    def __init__(self, clock: Clock) -> None:
        self.download = PhaseTimer(clock)
        """Table files and what describes them: fetched, checked, written to the local disk."""
        self.open = PhaseTimer(clock)
        """Tables opened; in another parallelism also clipped and put together."""
        self.fetch_log = PhaseTimer(clock)
        """Log fetched from its segments."""
        self.replay = PhaseTimer(clock)
        """Log decoded and merged, and what it came to loaded into the tables."""


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
    """Seconds the restore took; None until it is done."""
    timings: RestoreTimings = field(init=False)
    """Time per phase of the restore."""

    def __post_init__(self) -> None:
        self.timings = RestoreTimings(self.clock)

    @classmethod
    def of(cls, clock: Clock, states: Iterable[SubtaskState]) -> "RestoreProgress":
        """Progress over the given subtasks."""
        tables: dict[str, int] = {}
        log: dict[LogRange, int] = {}
        changes: dict[object, int] = {}
        for state in states:
            for layer in state.layers:
                table = layer.materialization
                if table is not None:
                    tables[table.descriptor] = table.table_bytes
                for log_range in layer.log:
                    log[log_range] = log_range.length
                # Subtasks that inherit parts of one log share its changes.
                shared = table, layer.upto, layer.seqno, layer.log, layer.inline
                changes[shared] = layer.seqno - layer.upto
        size = sum(tables.values()) + sum(log.values())
        return cls(clock, clock.monotonic(), size, sum(changes.values()))

    def finish(self) -> None:
        self.seconds = self.elapsed_s

    @property
    def fraction(self) -> float:
        """How much is done, between 0 and 1; bytes and changes weigh the same."""
        parts = [(self.bytes, self.total_bytes), (self.changes, self.total_changes)]
        shares = [min(1.0, done / total) for done, total in parts if total]
        return sum(shares) / len(shares) if shares else 1.0

    @property
    def elapsed_s(self) -> float:
        return self.clock.monotonic() - self.started

    @property
    def eta_s(self) -> float | None:
        """Estimated seconds left; None before there is something to go by."""
        done = self.fraction
        return self.elapsed_s * (1 - done) / done if done > 0 else None
