"""The materializer: one loop per subtask that uploads its table at its own phase.

Invariants: it never waits for a checkpoint and no checkpoint waits for it; the table is frozen
exactly at a flush boundary; a failure costs only its attempt until too many follow each other.
"""

import asyncio
from dataclasses import dataclass

from tidelog.dstl.cadence import Cadence
from tidelog.effects import Effects
from tidelog.errors import MaterializationFailedError, TidelogError
from tidelog.materialize.pacing import Pace
from tidelog.materialize.schedule import (
    MaterializeConfig,
    Observed,
    Reason,
    first_due,
    next_due,
    reason_to_start,
)
from tidelog.materialize.snapshot import TableSnapshots
from tidelog.state.backend import KeyedBackend
from tidelog.state.log import SubtaskLog

LOOK_S = 0.5
"""How often the triggers are looked at."""


@dataclass(slots=True)
class Materializer:
    """Materializes one subtask; `run` is its loop."""

    backend: KeyedBackend
    log: SubtaskLog
    snapshots: TableSnapshots
    config: MaterializeConfig
    effects: Effects
    cadence: Cadence
    pace: Pace
    turn: asyncio.Lock
    """One materialization of a process at a time: bandwidth and memory stay flat."""
    rank: int
    subtasks: int
    failures: int = 0
    last_reason: Reason | None = None
    last_error: str | None = None

    async def run(self) -> None:
        """Materialize until cancelled; raises after too many failures in a row."""
        clock = self.effects.clock
        due = first_due(self.rank, self.subtasks, self.config.interval, clock.monotonic())
        while True:
            await clock.sleep(min(LOOK_S, self.config.interval))
            now = clock.monotonic()
            reason = reason_to_start(self.config, self._observed(), due, now)
            if reason is not None and not await self._attempt(reason):
                # Still due: only this subtask waits, and then it tries again.
                await clock.sleep(self.config.retry_pause)
                continue
            due = next_due(due, self.config.interval, clock.monotonic())

    async def _attempt(self, reason: Reason) -> bool:
        """Materialize once; False when it failed and may be tried again."""
        self.last_reason = reason
        try:
            async with self.turn:
                await self.materialize()
        except TidelogError as error:
            self.failures += 1
            self.last_error = str(error)
            if self.failures > self.config.tolerable_failures:
                raise MaterializationFailedError(
                    f"{self.failures} materializations of {self.snapshots.operator}-"
                    f"{self.snapshots.subtask} in a row failed",
                    found=str(error),
                    action="mend the cause and start the job again; no state is lost, the log "
                    "has it all",
                ) from error
            return False
        self.failures = 0
        return True

    async def materialize(self) -> None:
        """Freeze the table at a flush boundary, upload what is new, cut the log behind it."""
        await self.snapshots.prepare()
        # No await between flush and capture: the table holds exactly the changes below seqno.
        self.backend.flush()
        captured = self.snapshots.capture(self.backend.seqno)
        self.backend.begin_chain()
        ref = await self.snapshots.upload(captured, pace=self.pace, cadence=self.cadence)
        self.log.materialized(ref)
        self.snapshots.ledger.done([ref.descriptor])

    def _observed(self) -> Observed:
        chain, base = self.log.chain, self.log.base
        return Observed(
            self.backend.seqno - base.upto + base.changes,
            chain.log_bytes,
            self.backend.table.size_bytes(),
            inherits=bool(base.inherited),
        )
