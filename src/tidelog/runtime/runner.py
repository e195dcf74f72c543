"""The embedded runtime: runs one incarnation of a job in this process.

Order of a start: take over the slot log (fencing every older incarnation), restore the newest
checkpoint, let sinks recover, then run. Any task's failure ends the incarnation; nothing is lost,
the next start resumes from the last slot.
"""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tidelog.checkpoint.collector import Collector
from tidelog.checkpoint.manifest import (
    Author,
    Checkpoint,
    Savepoint,
    SavepointFormat,
)
from tidelog.checkpoint.request import SavepointRequest
from tidelog.checkpoint.slots import SlotLog
from tidelog.checkpoint.startup import read_history
from tidelog.dstl.uploader import Uploader
from tidelog.effects import Effects
from tidelog.errors import SavepointFailedError
from tidelog.ids import CheckpointId, Generation, Slot
from tidelog.runtime.assembly import Blueprint, assemble
from tidelog.runtime.checkpointing import CheckpointDriver
from tidelog.runtime.config import JobConfig
from tidelog.runtime.deploy import Deployment
from tidelog.runtime.graph import Job, Vertex, compile_job
from tidelog.runtime.local_recovery import with_local_copies
from tidelog.runtime.matching import match_states
from tidelog.runtime.restore_from import RestoreFrom, Resumption, confirmed, look_ahead
from tidelog.runtime.supervise import run_until_done
from tidelog.runtime.tasks.stream_task import StreamTask
from tidelog.runtime.workdir import open_work_dir
from tidelog.state.progress import RestoreProgress
from tidelog.storage.ledger import Ledger
from tidelog.storage.port import ObjectStore

TICK_S = 0.1
"""How often tasks learn that processing time passed."""


@dataclass(frozen=True, slots=True)
class JobResult:
    """How an incarnation ended."""

    generation: Generation
    restored_slot: Slot | None
    last_slot: Slot | None
    checkpoints: int
    already_complete: bool
    stopped: Savepoint | None = None
    """The savepoint the job was stopped with; None: its data has ended."""


class JobRunner:
    """One incarnation of a job on one store."""

    def __init__(
        self,
        job: Job,
        store: ObjectStore,
        config: JobConfig | None = None,
        effects: Effects | None = None,
        *,
        restore_slot: Slot | None = None,
        restore_from: RestoreFrom | None = None,
    ) -> None:
        self.job = job
        self.store = store
        self.objects: ObjectStore = store
        """Where log and tables are read and written: the store, or copies in front of it."""
        self.config = config or JobConfig()
        self.effects = effects or Effects()
        self.restore_slot = restore_slot
        self.restore_from = restore_from
        self.resumption = Resumption(None, None, detached=False, claimed=None)
        self.generation: Generation | None = None
        self.restored: Checkpoint | None = None
        self.progress: RestoreProgress | None = None
        self.deployment: Deployment | None = None
        self.driver: CheckpointDriver | None = None
        self.uploader: Uploader | None = None
        self.collector: Collector | None = None
        self.running = False
        self._vertices: list[Vertex] = compile_job(job, self.config.parallelism)
        for vertex in self._vertices:
            self.config.check_parallelism(vertex.id, vertex.parallelism)

    async def run(self, on_started: Callable[[], None] | None = None) -> JobResult:
        """Run to the end of the data, or until cancelled.

        Raises FencedError, RestoreError, CheckpointFailedError, UserFunctionError, StorageError
        and others of `tidelog.errors`; starting again resumes from the last checkpoint.
        """
        slots = SlotLog(self.store, self.effects)
        # A job that could not resume must not fence the one that runs.
        seen = await look_ahead(slots, self.store, self.restore_from, self.restore_slot)
        match_states(self._vertices, seen.checkpoint, self.config)
        self.resumption = seen
        directory = open_work_dir(self.config.work_dir, self.store.url)
        try:
            taken = await slots.take_over(self.job.name)
            self.generation = taken.generation
            return await self._run(
                slots, Author(taken.generation, taken.attempt), taken.slots, directory, on_started
            )
        finally:
            self.running = False
            if self.deployment is not None:
                self.deployment.close()
            shutil.rmtree(directory, ignore_errors=True)

    async def savepoint(
        self,
        name: str | None = None,
        format: SavepointFormat = "native",
        *,
        timeout_s: float | None = None,
    ) -> Savepoint:
        """Take a savepoint of the running job; its slot, once it is complete.

        Raises ConfigError for a name that is not free, and SavepointFailedError when there is no
        savepoint; the job goes on either way.
        """
        driver = self._asked()
        name = driver.savepoints.name(name, self.effects.clock.now_ms())
        return await driver.savepoint(SavepointRequest(name, format, timeout_s=timeout_s))

    async def stop(
        self,
        name: str | None = None,
        format: SavepointFormat = "native",
        *,
        drain: bool = False,
        timeout_s: float | None = None,
    ) -> Savepoint:
        """Stop the running job with a savepoint: `run` returns behind it.

        Without `drain` nothing is emitted behind the savepoint's barrier, and the next start goes
        on exactly there. With it all windows and timers fire as at the end of the data, and the
        job is complete. Raises as `savepoint`; the job goes on, but not from a drain.
        """
        driver = self._asked()
        name = driver.savepoints.name(name, self.effects.clock.now_ms())
        return await driver.savepoint(
            SavepointRequest(name, format, stop=True, drain=drain, timeout_s=timeout_s)
        )

    def _asked(self) -> CheckpointDriver:
        """Who takes savepoints; raises SavepointFailedError before the start and after the end."""
        if self.driver is not None and self.running:
            return self.driver
        raise SavepointFailedError(
            f"savepoint of job {self.job.name!r}",
            expected="a running job",
            found="one that has not started, or has ended",
            action="ask again when it is running",
        )

    async def _run(
        self,
        slots: SlotLog,
        author: Author,
        earlier: tuple[Slot, ...],
        directory: Path,
        on_started: Callable[[], None] | None,
    ) -> JobResult:
        ledger = Ledger()
        history = await read_history(self.store, slots, earlier, ledger, author.generation)
        self.resumption = confirmed(self.resumption, history, self._chosen_slot())
        self.restored = restored = self.resumption.checkpoint
        self.objects = await with_local_copies(
            self.store, self.config, self.effects, history, ledger
        )
        next_id = max(history.next_checkpoint_id, restored.checkpoint_id + 1 if restored else 1)
        self._prepare(slots, author, ledger, directory, CheckpointId(next_id))
        deployment, driver, collector = self.deployment, self.driver, self.collector
        assert deployment is not None and driver is not None and collector is not None
        collector.spared = None if history.complete else author.generation
        collector.claimed = self.resumption.claimed
        driver.savepoints.known(history.checkpoints)
        for checkpoint in history.checkpoints:
            collector.retain(checkpoint)
        await deployment.build(self._vertices, restored)
        driver.tasks = deployment.tasks
        self.running = True
        if on_started is not None:
            on_started()
        if restored is None or not restored.final:
            await self._supervise(driver, collector)
        # The job has ended: only retained checkpoints still need objects.
        collector.live = set
        await collector.collect()
        last = driver.next_slot - 1
        return JobResult(
            generation=author.generation,
            restored_slot=restored.slot if restored else None,
            last_slot=Slot(last) if driver.metrics.completed else None,
            checkpoints=driver.metrics.completed,
            already_complete=restored is not None and restored.final,
            stopped=driver.savepoints.stopped,
        )

    def _prepare(
        self,
        slots: SlotLog,
        author: Author,
        ledger: Ledger,
        directory: Path,
        next_id: CheckpointId,
    ) -> None:
        """Make the parts; nothing runs yet."""
        plan = Blueprint(
            self.job,
            self._vertices,
            self.config,
            self.effects,
            self.objects,
            slots,
            author,
            ledger,
            directory,
            next_id,
            self.restored,
            self.resumption,
        )
        parts = assemble(plan)
        self.uploader, self.progress = parts.uploader, parts.progress
        self.collector, self.driver = parts.collector, parts.driver
        self.deployment = parts.deployment

    async def _supervise(self, driver: CheckpointDriver, collector: Collector) -> None:
        """Run everything until the final checkpoint; the first failure stops all of it."""
        deployment = self._deployed()
        lives = [deployment.live(task) for task in deployment.tasks]
        services = [collector.run(), self._tick()]
        if self.uploader is not None:
            services.append(self.uploader.run())
        await run_until_done([driver.run(), *lives], services)

    async def _tick(self) -> None:
        while True:
            await self.effects.clock.sleep(TICK_S)
            for task in self._deployed().tasks:
                if isinstance(task, StreamTask) and not task.exited:
                    task.gate.poke()

    def _chosen_slot(self) -> Slot | None:
        """The slot of the job's own store that the user chose."""
        if self.restore_from is None:
            return self.restore_slot
        seen = self.resumption
        return seen.checkpoint.slot if seen.checkpoint and self.restore_from.store is None else None

    def _deployed(self) -> Deployment:
        assert self.deployment is not None
        return self.deployment
