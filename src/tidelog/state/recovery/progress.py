"""Progress of a restore: bytes fetched, changes replayed, and the time of each phase.

Invariant: time in which several subtasks are in one phase counts once, so no phase takes longer
than the restore; phases overlap each other, so their sum may.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field

from tidelog.changelog.segment import LogRange
from tidelog.checkpoint.manifest import SubtaskState
from tidelog.effects import Clock
from tidelog.events import Event

logger = logging.getLogger(__name__)


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
class HydrationProgress:
    """How far the tables of a process are here that it serves already.

    A job that loads its state before it begins has none: nothing was begun.
    """

    clock: Clock
    total_bytes: int = 0
    """Bytes of the files of all tables that were opened before their files were here."""
    bytes: int = 0
    """Bytes of these that are here."""
    blocks: int = 0
    """Ranges of files that were fetched as a read needed them."""
    waits: int = 0
    """Reads for which the event loop or the user's code has waited."""
    waited_s: float = 0.0
    """Seconds of these waits."""
    stalled: int = 0
    """Tables whose writers wait until they are whole."""
    started: float | None = None
    """When the first table was served; None: no table was served before it was whole."""
    seconds: float | None = None
    """Seconds from then until all tables were whole; None until they are."""
    refusals: dict[str, int] = field(default_factory=dict)
    """Why tables were loaded whole first although they were to be served at once, and how many."""

    def stall(self, begins: bool) -> None:
        """The writers of one more table, or of one less, wait until it is whole."""
        self.stalled += 1 if begins else -1
        if begins:
            eta = "" if self.eta_s is None else f", and all in about {self.eta_s:.0f} s"
            Event.TABLE_STALLED.log(logger, share=f"{self.fraction:.0%}", eta=eta)

    @property
    def is_whole(self) -> bool:
        """Whether all files of all tables are here."""
        return self.started is None or self.seconds is not None

    @property
    def fraction(self) -> float:
        """How much is here, between 0 and 1."""
        return 1.0 if self.is_whole else min(1.0, self.bytes / max(1, self.total_bytes))

    @property
    def eta_s(self) -> float | None:
        """Estimated seconds until all is here; None before there is something to go by."""
        if self.is_whole:
            return 0.0
        assert self.started is not None
        passed_s, fraction = self.clock.monotonic() - self.started, self.fraction
        return passed_s * (1 - fraction) / fraction if fraction > 0 else None


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
    hydration: HydrationProgress = field(init=False)
    """What arrives while the job runs already."""

    def __post_init__(self) -> None:
        self.timings = RestoreTimings(self.clock)
        self.hydration = HydrationProgress(self.clock)

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
