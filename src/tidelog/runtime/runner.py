"""The embedded runtime: runs one incarnation of a job in this process.

Order of a start: take over the slot log (fencing every older incarnation), restore the newest
checkpoint, let sinks recover, then run. Any task's failure ends the incarnation; nothing is lost,
the next start resumes from the last slot.
"""

import asyncio
import contextlib
import shutil
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidelog.checkpoint.collector import Collector
from tidelog.checkpoint.coordinator import Coordinator
from tidelog.checkpoint.manifest import Author, Checkpoint, SubtaskState
from tidelog.checkpoint.slots import SlotLog
from tidelog.checkpoint.startup import read_history, resumable
from tidelog.dstl.cadence import Cadence
from tidelog.dstl.uploader import Uploader
from tidelog.effects import Effects
from tidelog.errors import TidelogError
from tidelog.ids import CheckpointId, Generation, Slot
from tidelog.runtime.checkpointing import CheckpointDriver
from tidelog.runtime.config import JobConfig
from tidelog.runtime.deploy import Deployment
from tidelog.runtime.graph import Job, Vertex, compile_job
from tidelog.runtime.matching import match_states
from tidelog.runtime.stream_task import StreamTask
from tidelog.runtime.subtask_state import SubtaskStates
from tidelog.runtime.task import TaskId
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
    ) -> None:
        self.job = job
        self.store = store
        self.config = config or JobConfig()
        self.effects = effects or Effects()
        self.restore_slot = restore_slot
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
        match_states(self._vertices, await resumable(slots, self.restore_slot), self.config)
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
        self.restored = restored = history.resume_from(self.restore_slot)
        self._prepare(slots, author, ledger, directory, history.next_checkpoint_id)
        deployment, driver, collector = self.deployment, self.driver, self.collector
        assert deployment is not None and driver is not None and collector is not None
        collector.spared = None if history.complete else author.generation
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
        )

    def _prepare(
        self,
        slots: SlotLog,
        author: Author,
        ledger: Ledger,
        directory: Path,
        next_id: CheckpointId,
    ) -> None:
        """Create the parts; nothing runs yet."""
        config, effects = self.config, self.effects
        cadence = Cadence(effects.clock)
        if config.changelog or config.overtakes:
            self.uploader = Uploader(
                store=self.store,
                effects=effects,
                ledger=ledger,
                generation=author.generation,
                process=author.attempt,
                cadence=cadence,
                config=config.upload,
            )
        self.progress = RestoreProgress.of(effects.clock, _states(self.restored))
        task_ids = [TaskId(v.id, i) for v in self._vertices for i in range(v.parallelism)]
        self.collector = Collector(self.store, slots, ledger, config.retain, self._live)
        self.driver = CheckpointDriver(
            coordinator=Coordinator(task_ids, config.schedule, next_id, effects.clock.monotonic()),
            effects=effects,
            slots=slots,
            author=author,
            job=self.job.name,
            next_slot=Slot(author.generation + 1),
            collector=self.collector,
            cadence=cadence,
            operators=lambda states: self._deployed().operator_states(self._vertices, states),
            order=config.unaligned.order if config.overtakes else "aligned",
            previous=self.restored,
        )
        states = SubtaskStates(
            config=config,
            store=self.store,
            effects=effects,
            generation=author.generation,
            ledger=ledger,
            uploader=self.uploader if config.changelog else None,
            cadence=cadence,
            directory=directory,
            progress=self.progress,
        )
        self.deployment = Deployment(
            self.job.name,
            author.generation,
            author.attempt,
            states,
            self.driver,
            uploader=self.uploader if config.overtakes else None,
        )

    async def _supervise(self, driver: CheckpointDriver, collector: Collector) -> None:
        """Run everything until the final checkpoint; the first failure stops all of it."""
        deployment = self._deployed()
        loops: list[Coroutine[Any, Any, None]] = [task.run() for task in deployment.tasks]
        loops += [materializer.run() for materializer in deployment.states.materializers]
        loops += [collector.run(), self._tick()]
        if self.uploader is not None:
            loops.append(self.uploader.run())
        driving = asyncio.ensure_future(driver.run())
        running = [asyncio.ensure_future(loop) for loop in loops]
        try:
            done, _ = await asyncio.wait([driving, *running], return_when=asyncio.FIRST_COMPLETED)
            for ended in done:
                ended.result()
            await driving
        finally:
            for task in [driving, *running]:
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError, TidelogError):
                await asyncio.gather(driving, *running, return_exceptions=True)

    async def _tick(self) -> None:
        while True:
            await self.effects.clock.sleep(TICK_S)
            for task in self._deployed().tasks:
                if isinstance(task, StreamTask):
                    task.gate.poke()

    def _live(self) -> set[str]:
        return self._deployed().live_objects()

    def _deployed(self) -> Deployment:
        assert self.deployment is not None
        return self.deployment


def _states(checkpoint: Checkpoint | None) -> list[SubtaskState]:
    return [state for _, state in checkpoint.subtasks()] if checkpoint is not None else []
