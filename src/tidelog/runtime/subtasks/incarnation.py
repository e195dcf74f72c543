"""An incarnation of a job: the parts of one start, made and connected.

Invariant: nothing runs yet when they are made, and nothing of the store was read or written.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tidelog.changelog.cadence import Cadence
from tidelog.changelog.uploader import Uploader
from tidelog.checkpoint.coordinator import Coordinator
from tidelog.checkpoint.garbage_collector import Collector
from tidelog.checkpoint.manifest import Author
from tidelog.checkpoint.slots import SlotLog
from tidelog.checkpoint.startup import History
from tidelog.effects import Effects
from tidelog.ids import CheckpointId, Slot
from tidelog.runtime.checkpoints.driver import CheckpointDriver
from tidelog.runtime.checkpoints.operators import ManifestOperators, predecessors
from tidelog.runtime.checkpoints.savepoints import Savepoints
from tidelog.runtime.config import JobConfig
from tidelog.runtime.graph import Job
from tidelog.runtime.in_flight.carrier import types_of
from tidelog.runtime.restore.plan import RestorePlan
from tidelog.runtime.subtasks.build import Deployment
from tidelog.runtime.subtasks.resources import Resources
from tidelog.runtime.subtasks.state import SubtaskStates
from tidelog.runtime.tasks.sink_output import transactions_of
from tidelog.runtime.tasks.task import Task
from tidelog.state.registry import StateRegistry
from tidelog.state.restore.progress import RestoreProgress
from tidelog.storage.ledger import Ledger
from tidelog.storage.port import ObjectStore

if TYPE_CHECKING:
    from tidelog.checkpoint.local_first import LocalFirstStore


class Incarnation(msgspec.Struct, frozen=True):
    """One start of a job: what it goes on from, and the parts that run it."""

    plan: RestorePlan
    copies: "LocalFirstStore | None"
    """What log and tables are read and written through; None: local recovery is off."""
    uploader: Uploader | None
    """Uploads segments; None when neither changes nor in-flight data need it."""
    collector: Collector
    driver: CheckpointDriver
    deployment: Deployment


class Blueprint(msgspec.Struct, frozen=True):
    """What an incarnation is made from."""

    job: Job
    config: JobConfig
    effects: Effects
    plan: RestorePlan
    author: Author
    history: History
    store: ObjectStore
    slots: SlotLog
    ledger: Ledger
    directory: Path
    """For tables and snapshots; worthless after a crash."""
    copies: "LocalFirstStore | None" = None
    """As in `Incarnation`."""
    resources: Resources | None = None
    """Those of the process, which other jobs share; None: there are no others."""

    @property
    def _objects(self) -> ObjectStore:
        return self.copies or self.store

    def assemble(self) -> Incarnation:
        """Make all parts and connect them."""
        config, plan, author = self.config, self.plan, self.author
        cadence, collector = Cadence(self.effects.clock), self._collector()
        resources = self.resources or self._own_resources()
        registries = {vertex.id: plan.registry_of(vertex) for vertex in plan.vertices}
        uploader = (
            self._uploader(cadence, resources) if config.changelog or config.overtakes else None
        )
        # Both refer to the tasks: the driver sends them barriers, and they report to the driver.
        tasks: list[Task] = []
        driver = self._driver(collector, cadence, registries, tasks, resources.phase())
        stored = [state for _, state in plan.checkpoint.subtasks()] if plan.checkpoint else []
        states = SubtaskStates(
            plan=plan,
            config=config,
            store=self._objects,
            copies=self.copies,
            effects=self.effects,
            generation=author.generation,
            ledger=self.ledger,
            uploader=uploader if config.changelog else None,
            cadence=cadence,
            directory=self.directory,
            # A restore loads nothing of finished subtasks.
            progress=RestoreProgress.of(
                self.effects.clock, [state for state in stored if not state.finished]
            ),
            resources=resources,
        )
        deployment = Deployment(
            job=self.job,
            config=config,
            plan=plan,
            author=author,
            states=states,
            registries=registries,
            listener=driver,
            tasks=tasks,
            uploader=uploader if config.overtakes else None,
            retained=None if self.history.damaged else transactions_of(self.history.checkpoints),
            record_types=types_of(self.job.record_types),
        )
        return Incarnation(plan, self.copies, uploader, collector, driver, deployment)

    def _own_resources(self) -> Resources:
        vertices = self.plan.vertices
        subtasks = sum(vertex.parallelism for vertex in vertices)
        tables = sum(each.parallelism for each in vertices if each.head.keyed)
        return Resources.of(self.config, self.effects.clock, subtasks=subtasks, tables=tables)

    def _uploader(self, cadence: Cadence, resources: Resources) -> Uploader:
        return Uploader(
            store=self._objects,
            effects=self.effects,
            ledger=self.ledger,
            generation=self.author.generation,
            process=self.author.attempt,
            cadence=cadence,
            config=self.config.memory_parts.upload(self.config.upload),
            shared_room=resources.room,
        )

    def _collector(self) -> Collector:
        collector = Collector(
            self._objects,
            self.slots,
            self.ledger,
            self.config.retain,
            spared=None if self.history.complete else self.author.generation,
            claimed=self.plan.resumption.claimed,
            unreadable=frozenset(self.history.damaged),
        )
        for checkpoint in self.history.checkpoints:
            collector.retain(checkpoint)
        return collector

    def _driver(
        self,
        collector: Collector,
        cadence: Cadence,
        registries: dict[str, StateRegistry],
        tasks: list[Task],
        phase: float,
    ) -> CheckpointDriver:
        config, plan, restored = self.config, self.plan, self.plan.checkpoint
        savepoints = Savepoints()
        savepoints.known(self.history.checkpoints)
        next_id = self.history.next_checkpoint_id
        if restored is not None:
            next_id = CheckpointId(max(next_id, restored.checkpoint_id + 1))
        return CheckpointDriver(
            coordinator=Coordinator(
                predecessors(plan.vertices),
                config.checkpoint,
                next_id,
                self.effects.clock.monotonic() - phase * config.checkpoint.interval,
                plan.finished,
            ),
            effects=self.effects,
            slots=self.slots,
            author=self.author,
            job=self.job.name,
            next_slot=Slot(self.author.generation + 1),
            collector=collector,
            cadence=cadence,
            operators=ManifestOperators(
                plan.vertices, registries, config.key_groups, dict(plan.finished)
            ),
            savepoints=savepoints,
            tasks=tasks,
            order=config.unaligned.order if config.overtakes else "aligned",
            previous=None if plan.resumption.origin is not None else restored,
        )
