"""The embedded runtime: runs one incarnation of a job in this process.

Order of a start: take over the slot log (fencing every older incarnation), restore the newest
checkpoint, let sinks recover, then run. Any task's failure ends the incarnation; nothing is lost,
the next start resumes from the last slot.
"""

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.checkpoint.decisions import SavepointRequest
from tidelog.checkpoint.manifest import Author, Savepoint, SavepointFormat
from tidelog.checkpoint.retention import checkpoint_objects
from tidelog.checkpoint.slots import SlotLog, TakeOver
from tidelog.checkpoint.startup import History, read_history
from tidelog.credentials import records_shown
from tidelog.effects import Effects
from tidelog.errors import ConfigError, SavepointFailedError, TidelogError, require
from tidelog.events import Event
from tidelog.ids import Generation, Slot
from tidelog.runtime.config import JobConfig
from tidelog.runtime.graph import Job
from tidelog.runtime.restore.choose import (
    RestoreFrom,
    RestorePlan,
    Resumption,
    check_name,
    choose,
    confirm,
)
from tidelog.runtime.restore.plan import plan_restore
from tidelog.runtime.subtasks.incarnation import Incarnation, LocalSubtasks, Subtasks, incarnate
from tidelog.runtime.subtasks.resources import Resources, open_work_dir, remove_work_dir
from tidelog.runtime.subtasks.start import JobStart, open_copies
from tidelog.runtime.subtasks.state import SubtaskStates
from tidelog.runtime.subtasks.vertices import ALL, NONE
from tidelog.storage import object_names
from tidelog.storage.ledger import Ledger
from tidelog.storage.local import local_directory
from tidelog.storage.port import ObjectStore

if TYPE_CHECKING:
    from tidelog.checkpoint.local_first import LocalFirstStore
    from tidelog.runtime.workers.parent import Workers

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class JobResult:
    """How an incarnation ended."""

    generation: Generation
    restored_checkpoint: Slot | None
    last_checkpoint: Slot | None
    checkpoints: int
    already_complete: bool
    """The job had ended with the restored checkpoint, and this start has read nothing."""
    stopped: Savepoint | None = None
    """The savepoint the job was stopped with; None: its data has ended."""
    nothing_new: bool = False
    """The job had ended before, its sources have looked for new input, and there was none."""


async def _nothing() -> set[str]:
    """The live objects of a job that has ended."""
    return set()


class JobRunner:
    """One incarnation of a job on one store."""

    def __init__(
        self,
        job: Job,
        store: ObjectStore,
        config: JobConfig | None = None,
        effects: Effects | None = None,
        *,
        restore_checkpoint: Slot | None = None,
        restore_from: RestoreFrom | None = None,
        resources: Resources | None = None,
        workers: "Workers | None" = None,
    ) -> None:
        """Raises ConfigError and its kinds for a job that cannot run with this configuration.

        `resources` are those of the process, when other jobs of it share them; `workers` are
        other processes, which have all subtasks then.
        """
        require("job of a JobRunner", repr(job), isinstance(job, Job), "a Job")
        fits = not isinstance(store, str | os.PathLike | None)
        require("store of a JobRunner", repr(store), fits, "what open_store(url) returns")
        fits = isinstance(config, JobConfig | None)
        require("config of a JobRunner", repr(config), fits, "a JobConfig")
        fits = isinstance(restore_from, RestoreFrom | None)
        require("restore_from of a JobRunner", repr(restore_from), fits, "a RestoreFrom")
        self.job = job
        self.store = store
        self.config = config or JobConfig()
        self.effects = effects or Effects()
        self.restore_checkpoint = restore_checkpoint
        self.restore_from = restore_from
        self._resources = resources
        self._workers = workers
        self.generation: Generation | None = None
        """The number of this start; None until the store is taken over."""
        self.states: SubtaskStates | None = None
        """The state of all subtasks; None until it is known what is restored."""
        self.subtasks: Subtasks | None = None
        """All subtasks, of this process or of workers; known with `states`."""
        self.incarnation: Incarnation | None = None
        """What runs; None until all is restored."""
        self.running = False
        self.ending = False
        """Nothing is handled any more; the run, or the last one, releases what it has."""
        self._in_run = False
        """Whether a call of `run` has not returned yet."""
        self._plan(Resumption())
        if (directory := local_directory(store.url)) is not None:
            job.check_unread(f"store {store.url}", directory / object_names.checkpoint(Slot(0)))
        if self.config.workers > 1 and workers is None:
            raise ConfigError(
                "option workers",
                expected="1: what a program runs itself is in its own process",
                found=str(self.config.workers),
                action="leave it out; several such programs share their state by open_partitions"
                if job.has("caller")
                else "leave it out, or let the command run the job, `tidelog run FILE.py:FUNCTION "
                f"--workers {self.config.workers}`, where the function returns it",
            )
        if self.config.encryption_key is not None and store.cipher is None:
            raise ConfigError(
                f"store {store.url}",
                expected="an encrypted store, for JobConfig.encryption_key is set",
                found="one that was opened without a key",
                action="open it with open_store(..., encryption_key=config.encryption_key)",
            )

    async def run(self, on_started: Callable[[], None] | None = None) -> JobResult:
        """Run to the end of the data, or until cancelled.

        Raises FencedError, RestoreError, CheckpointFailedError, UserFunctionError, StorageError
        and others of `tidelog.errors`; starting again resumes from the last checkpoint. Raises
        ConfigError while another call of it has not returned.
        """
        if self._in_run:
            raise ConfigError(
                f"JobRunner of job {self.job.name!r}",
                expected="one call of run() at a time",
                found="another one that has not returned",
                action="await that one; for another job make another JobRunner, on another store",
            )
        self._in_run, self.ending = True, False
        self.generation = self.states = self.subtasks = self.incarnation = None
        try:
            with records_shown(self.config.show_records):
                return await self._run_begun(on_started)
        finally:
            self._in_run = False

    async def _run_begun(self, on_started: Callable[[], None] | None) -> JobResult:
        slots = SlotLog(self.store, self.effects)
        # A job that could not resume must not fence the one that runs.
        resumption = await choose(slots, self.store, self.restore_from, self.restore_checkpoint)
        check_name(self.job.name, resumption)
        if self.config.rocksdb.options_file is not None:
            from tidelog.runtime.restore.fit import check_options_file  # noqa: PLC0415  # rare

            check_options_file(self.config)
        plan = self._plan(resumption)
        directory = open_work_dir(self.config.work_dir, self.store.url)
        succeeded = False
        try:
            goes_back = self.restore_from is not None and self.restore_from.store is None
            take_over = await slots.take_over(self.job.name, resumption.first, goes_back=goes_back)
            self.generation = take_over.generation
            result = await self._run(slots, take_over, plan, directory, on_started)
            succeeded = True
            return result
        finally:
            self.running, self.ending = False, True
            try:
                if self.states is not None:
                    if self.states.start.uploader is not None:
                        self.states.start.uploader.leave()
                    await self.states.close(quietly=not succeeded)
            finally:
                if self._workers is not None:
                    await self._workers.end()
                await self.effects.offload.run_to_end(remove_work_dir, directory)

    def _plan(self, resumption: Resumption) -> RestorePlan:
        return plan_restore(self.job, resumption, self.config, self.effects.clock)

    async def savepoint(
        self,
        name: str | None = None,
        format: SavepointFormat = "native",
        *,
        timeout_s: float | None = None,
    ) -> Savepoint:
        """Take a savepoint of the running job; its manifest, once it is complete.

        Raises ConfigError for a name that is not free, and SavepointFailedError when there is no
        savepoint; the job goes on either way.
        """
        return await self._take_savepoint(name, format, timeout_s)

    async def stop(
        self,
        name: str | None = None,
        format: SavepointFormat = "native",
        *,
        drain: bool = False,
        timeout_s: float | None = None,
    ) -> Savepoint:
        """Stop the running job with a savepoint: `run` returns after it.

        Without `drain` nothing is emitted after the savepoint's barrier, and the next start goes
        on exactly there. With it all windows and timers fire as at the end of the data, and the
        job is complete. Raises as `savepoint`; the job goes on, but not from a drain.
        """
        return await self._take_savepoint(name, format, timeout_s, stop=True, drain=drain)

    async def _take_savepoint(
        self,
        name: str | None,
        format: SavepointFormat,
        timeout_s: float | None,
        *,
        stop: bool = False,
        drain: bool = False,
    ) -> Savepoint:
        if self.incarnation is None or not self.running:
            raise SavepointFailedError(
                f"savepoint of job {self.job.name!r}",
                expected="a running job",
                found="one that has not started, or has ended",
                action="ask again when it is running",
            )
        if drain and not self.job.has("source"):
            raise SavepointFailedError(
                f"savepoint of job {self.job.name!r} with --drain",
                expected="a job with sources, whose data can be taken as ended",
                found="state for a program's own loop",
                action="leave --drain out",
            )
        if format == "canonical" and (hydration := self.incarnation.states.hydration) is not None:
            # It reads all rows: begun before they are here it would hold up all checkpoints.
            await hydration.whole()
        driver = self.incarnation.driver
        retained = driver.collector.retained
        free = driver.savepoints.name(name, self.effects.clock.now_ms(), retained)
        return await driver.savepoint(SavepointRequest(free, format, stop, drain, timeout_s))

    async def _run(
        self,
        slots: SlotLog,
        take_over: TakeOver,
        plan: RestorePlan,
        directory: Path,
        on_started: Callable[[], None] | None,
    ) -> JobResult:
        try:
            incarnation = await self._start(slots, take_over, plan, directory)
        except TidelogError:
            # A newer generation may have dropped what this one needs: that is the true reason.
            await slots.prove_newest(Slot(take_over.generation), take_over.generation)
            raise
        restored, driver = incarnation.plan.checkpoint, incarnation.driver
        Event.JOB_RESTORED.log(
            logger,
            generation=take_over.generation,
            job=self.job.name,
            checkpoint=restored.slot if restored is not None else None,
        )
        self.running = True
        if on_started is not None:
            on_started()
        if restored is None or not restored.final:
            await self._supervise(incarnation)
        # The job has ended: only retained checkpoints still need objects, and no upload of it goes
        # on that something would refer to.
        ledger = incarnation.start.ledger
        ledger.done(ledger.busy)
        await incarnation.collector.collect(_nothing)
        return JobResult(
            generation=take_over.generation,
            restored_checkpoint=restored.slot if restored else None,
            last_checkpoint=Slot(driver.next_slot - 1) if driver.metrics.completed else None,
            checkpoints=driver.metrics.completed,
            already_complete=driver.looked_at is not None
            or (restored is not None and restored.final),
            stopped=driver.savepoints.stopped,
            nothing_new=driver.looked_at is not None,
        )

    async def _start(
        self, slots: SlotLog, take_over: TakeOver, plan: RestorePlan, directory: Path
    ) -> Incarnation:
        """Restore, let sinks recover, and build the tasks; nothing runs yet."""
        ledger, generation = Ledger(), take_over.generation
        history = await read_history(self.store, slots, take_over, ledger)
        resumption = confirm(plan.resumption, history)
        if resumption is not plan.resumption:
            plan = self._plan(resumption)
        for dropped in plan.dropped:
            Event.STATE_DROPPED.log(logger, job=self.job.name, dropped=dropped)
        start = JobStart(
            self.job,
            self.config,
            self.effects,
            plan,
            Author(generation, take_over.attempt),
            history,
            self.store,
            slots,
            ledger,
            directory,
            await self._local_copies(history, ledger),
            self._resources,
            ALL if self._workers is None else NONE,
            pace=None if self._workers is None else self._workers.pace,
        )
        self.states = SubtaskStates(start)
        self.subtasks = (
            LocalSubtasks(self.states) if self._workers is None else self._workers.of(start)
        )
        prove_newest = partial(slots.prove_newest, Slot(generation), generation)
        self.incarnation = await incarnate(self.states, self.subtasks, prove_newest)
        # A start that is refused changes nothing of what it found. Nor is it left to the job, which
        # may fail at its first record again and again, and leave more and more slots.
        await slots.remove_left_over(take_over.left_over)
        return self.incarnation

    async def _local_copies(self, history: History, ledger: Ledger) -> "LocalFirstStore | None":
        """The store with local copies in front of it; None when local recovery is off.

        Only copies that a retained checkpoint needs are left, so the disk is bounded by retention
        also when another machine ran the job in between. Raises StorageError and its kinds when
        the directory cannot be used at all.
        """
        copies = await open_copies(self.store, self.config, self.effects)
        if copies is not None:
            needed = set[str]().union(*map(checkpoint_objects, history.checkpoints))
            await copies.prune(ledger.closure(needed))
        return copies

    async def _supervise(self, incarnation: Incarnation) -> None:
        await incarnation.run()
