"""Where the time of a restore goes: phases that many subtasks are in, side by side.

Invariant: time in which several subtasks are in one phase counts once, so no phase takes longer
than the restore; phases overlap each other, so their sum may.
"""

from dataclasses import dataclass, field

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
        """Seconds spent in the phase so far."""
        running = self.clock.monotonic() - self._since if self._inside else 0.0
        return self._passed_s + running


@dataclass(slots=True)
class RestoreTimings:
    """The phases of a restore."""

    clock: Clock
    download: PhaseTimer = field(init=False)
    """Table files and what describes them: fetched, checked, written to the local disk."""
    open: PhaseTimer = field(init=False)
    """Tables opened; in another parallelism also clipped and put together."""
    fetch_log: PhaseTimer = field(init=False)
    """Log fetched from its segments."""
    replay: PhaseTimer = field(init=False)
    """Log decoded and merged, and what it came to loaded into the tables."""

    def __post_init__(self) -> None:
        self.download, self.open = PhaseTimer(self.clock), PhaseTimer(self.clock)
        self.fetch_log, self.replay = PhaseTimer(self.clock), PhaseTimer(self.clock)
