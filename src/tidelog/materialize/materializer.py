"""The materializer: one loop per subtask that uploads its table at its own phase.

Invariants: it never waits for a checkpoint and no checkpoint waits for it; a frozen table has all
changes before a flush boundary, and of later ones whatever was written to it until it was frozen: a
checkpoint that names it is taken after that, so its log has those too; a failure costs only its
attempt until too many follow each other; what falls behind is logged.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from tidelog.effects import Clock, Effects
from tidelog.errors import MaterializationFailedError, TidelogError
from tidelog.events import Event
from tidelog.materialize.schedule import (
    LATE_INTERVALS,
    MaterializeConfig,
    Observed,
    finish_by,
    first_due,
    is_due,
    missed,
    next_due,
)
from tidelog.materialize.table_snapshot import Captured, TableSnapshots
from tidelog.options.units import plural
from tidelog.state.backend import KeyedBackend
from tidelog.state.log import SubtaskLog

LOOK_S = 0.5
"""How often the triggers are looked at."""
_WATCH_S: Final = 1.0
_PAUSE_S: Final = 0.004
"""Between two steps that write rows to a table, each of some 1.5 ms."""
AT_ONCE: Final = 4
"""Materializations of a process at a time."""

logger = logging.getLogger(__name__)


class Turns(msgspec.Struct, frozen=True):
    """Locks that the materializers of a process share."""

    uploads: asyncio.Semaphore = msgspec.field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))
    """On a store that answers slowly one upload at a time would be too few."""
    freezing: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)
    """One table at a time is flushed and frozen: that takes the disk and the processor."""


@dataclass(slots=True)
class Materializer:
    """Materializes one subtask; `run` is its loop."""

    backend: KeyedBackend
    log: SubtaskLog
    snapshots: TableSnapshots
    config: MaterializeConfig
    effects: Effects
    turns: Turns
    rank: int
    subtasks: int
    failures: int = 0
    missed: int = 0
    """Intervals that passed without the materialization that was due."""
    _due: float = field(init=False)
    _replacing: bool = False
    """The store has lost something of the last materialization or the log after it."""
    _settled: asyncio.Event = field(default_factory=asyncio.Event)
    """Nothing is to be replaced; or the loop has ended, and nothing will be."""
    _over: bool = False

    def __post_init__(self) -> None:
        self._settled.set()
        now = self.effects.clock.monotonic()
        self._due = first_due(self.rank, self.subtasks, self.config.interval, now)

    @property
    def name(self) -> str:
        """`operator-subtask` of the table, for messages."""
        return f"{self.snapshots.operator}-{self.snapshots.subtask}"

    @property
    def late_s(self) -> float:
        """Seconds since the materialization under way, or the next one, was due."""
        if not self.backend.is_whole:
            return 0.0
        return max(0.0, self.effects.clock.monotonic() - self._due)

    async def replace(self) -> None:
        """Materialize soon, as the store has lost an object; returns when it is done, or failed."""
        if not self._over:
            self.log.start_over()
            self._replacing = True
            self._settled.clear()
            await self._settled.wait()

    async def run(self) -> None:
        """Materialize until cancelled; raises after too many failures in a row."""
        try:
            await self._run()
        finally:
            self._over = True
            self._settled.set()

    async def _run(self) -> None:
        clock, interval = self.effects.clock, self.config.interval
        if self.backend.hydration is not None:
            # No file is uploaded with holes.
            await self.backend.hydration.whole()
            self._due = next_due(self._due, interval, clock.monotonic())
        while True:
            now = clock.monotonic()
            await clock.sleep(min(LOOK_S, interval, max(0.0, self._due - now)))
            now = clock.monotonic()
            if self._replacing or is_due(self.config, self._observed(), self._due, now):
                if not await self._attempt():
                    # Still due: only this subtask waits, and then it tries again.
                    await clock.sleep(self.config.retry_pause)
                    continue
                self.missed += missed(self._due, interval, clock.monotonic())
            self._due = next_due(self._due, interval, clock.monotonic())

    async def _attempt(self) -> bool:
        """Materialize once; False when it failed and may be tried again."""
        try:
            async with self.turns.uploads:
                await self.materialize()
        except TidelogError as error:
            self.failures += 1
            Event.MATERIALIZATION_FAILED.log(
                logger, subtask=self.name, failures=self.failures, error=error
            )
            if self.failures > self.config.tolerable_failures:
                raise MaterializationFailedError(
                    f"{plural(self.failures, 'materialization')} of {self.name} in a row failed",
                    expected=f"at most {self.config.tolerable_failures}, as configured",
                    found=str(error),
                    action="correct the cause and start the job again; no state is lost, the log "
                    "has it all",
                ) from error
            return False
        self.failures = 0
        return True

    async def materialize(self) -> None:
        """Freeze the table with all that was flushed, upload what is new, cut the log it covers."""
        replacing, self._replacing = self._replacing, False
        try:
            await self._materialize()
        except BaseException:
            self._replacing |= replacing
            raise
        if not self._replacing:
            self._settled.set()

    async def _materialize(self) -> None:
        async with self.turns.freezing:
            with self.snapshots.counting():
                captured = await self._frozen()
        now = self.effects.clock.monotonic()
        ref = await self.snapshots.upload(captured, finish_by(self._due, self.config.interval, now))
        self.log.materialized(ref)
        self.snapshots.ledger.done([ref.descriptor])

    async def _frozen(self) -> Captured:
        for _ in self.backend.flush_in_steps():
            await self.effects.clock.sleep(0)
        # What is flushed from here on belongs to the log after it.
        upto = self.backend.begin_chain()
        for _ in self.backend.settle():
            # In no hurry: there may be hundreds of thousands of rows, and records wait.
            await self.effects.clock.sleep(min(_PAUSE_S, self.config.interval / 2000))
        await self.snapshots.prepare()
        return self.snapshots.capture(upto)

    def _observed(self) -> Observed:
        chain, base = self.log.chain, self.log.base
        return Observed(
            self.backend.seqno - base.upto + base.changes,
            chain.log_bytes,
            self.backend.table_bytes(),
            inherits=bool(base.inherited),
        )


async def warn_of_lag(
    materializers: Callable[[], Iterable[Materializer]], interval: float, clock: Clock
) -> None:
    """Until cancelled, log when materializations fall behind, and when they are on time again."""
    behind = False
    while True:
        await clock.sleep(min(interval, _WATCH_S))
        running = list(materializers())
        late = [m for m in running if m.late_s > LATE_INTERVALS * interval]
        if late and not behind:
            worst = max(late, key=lambda m: m.late_s)
            Event.MATERIALIZATIONS_LATE.log(
                logger,
                late=len(late),
                subtasks=len(running),
                intervals=LATE_INTERVALS,
                interval_s=interval,
                latest=worst.name,
                late_s=worst.late_s,
            )
        elif behind and not late:
            Event.MATERIALIZATIONS_ON_TIME.log(logger)
        behind = bool(late)
