"""The state of all subtasks: restored or empty tables, their logs, backends and snapshots.

Invariant: what a restore loaded and what the new log chain continues are the same changes.
"""

import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidelog.changelog.cadence import Cadence
from tidelog.changelog.chain import SubtaskLogChain
from tidelog.changelog.uploader import Uploader
from tidelog.checkpoint.manifest import SubtaskState
from tidelog.concurrency import together
from tidelog.effects import Effects
from tidelog.ids import Generation, SeqNo, SubtaskId
from tidelog.materialize.materializer import Materializer
from tidelog.materialize.pacing import UploadSlots
from tidelog.materialize.table_snapshot import TableSnapshots
from tidelog.runtime.config import JobConfig
from tidelog.runtime.restore.plan import RestorePlan
from tidelog.runtime.snapshots.canonical import CanonicalSnapshotter, RowUploads
from tidelog.runtime.snapshots.snapshotter import LogSnapshotter, Snapshotter, TableSnapshotter
from tidelog.runtime.subtasks.resources import Resources
from tidelog.runtime.subtasks.vertices import Vertex
from tidelog.state.backend import KeyedBackend
from tidelog.state.event_time import EventTime
from tidelog.state.key_groups import range_of
from tidelog.state.log import Base, NoLog, SubtaskLog
from tidelog.state.registry import StateRegistry
from tidelog.state.restore.progress import RestoreProgress
from tidelog.storage.ledger import Ledger
from tidelog.storage.port import ObjectStore
from tidelog.table.memory import MemoryTableFactory
from tidelog.table.port import Table, TableFactory

if TYPE_CHECKING:
    from tidelog.checkpoint.local_first import LocalFirstStore
    from tidelog.state.restore.restorer import RestoredSubtask

_AT_ONCE: Final = 4
"""Tables that are created side by side."""


@dataclass(slots=True)
class Subtask:
    """What keeps the state of one subtask; its table is that of the backend."""

    backend: KeyedBackend
    snapshots: TableSnapshots
    snapshotter: Snapshotter
    canonical: CanonicalSnapshotter
    materializer: Materializer | None
    """Uploads the table now and then; None without a log, when every checkpoint does."""
    released: bool = False
    """The subtask exited and its table is closed; the figures of its snapshots stay."""


@dataclass(slots=True)
class SubtaskStates:
    """Builds and releases the state of every subtask of one incarnation."""

    plan: RestorePlan
    config: JobConfig
    store: ObjectStore
    effects: Effects
    generation: Generation
    ledger: Ledger
    uploader: Uploader | None
    """Uploads segments; None when the changelog is off."""
    cadence: Cadence
    directory: Path
    progress: RestoreProgress
    resources: Resources
    """Shared by all subtasks, and by those of other jobs of the process."""
    copies: "LocalFirstStore | None" = None
    """The store, when it keeps copies on local disk."""
    loaded: dict[SubtaskId, "RestoredSubtask"] = field(default_factory=dict)
    """What was restored for subtasks that are not built yet ..."""
    created: dict[SubtaskId, Table] = field(default_factory=dict)
    """... and the empty tables of those that nothing was restored for."""
    subtasks: dict[SubtaskId, Subtask] = field(default_factory=dict)
    """The subtasks built so far, in the order of the job."""
    upload_slots: UploadSlots = field(init=False)
    _rows: RowUploads = field(init=False)

    def __post_init__(self) -> None:
        self.upload_slots = UploadSlots(self.effects.clock, self.cadence, self.resources.link)
        self._rows = RowUploads(
            self.store, self.effects, self.ledger, self.generation, self.config.upload
        )

    @property
    def materializers(self) -> list[Materializer]:
        """The materializers of the subtasks that have not exited."""
        running = (each for each in self.subtasks.values() if not each.released)
        return [each.materializer for each in running if each.materializer is not None]

    @property
    def open_tables(self) -> list[Table]:
        """Restored tables, and those of the subtasks that have not exited."""
        built = [each.backend.table for each in self.subtasks.values() if not each.released]
        restored = (each.table for each in self.loaded.values())
        return [*restored, *self.created.values(), *built]

    async def restore(self) -> None:
        """Load all stored subtasks that go on, in parallel; when one fails none stays open. The
        others get empty tables.
        """
        states = {
            subtask: state
            for vertex in self.plan.vertices
            for subtask in vertex.subtasks
            if (state := self.plan.state_of(subtask)) and subtask not in self.plan.finished
        }
        if states:
            # A job that begins loads nothing, and the modules that load are many.
            from tidelog.state.restore.restorer import restore_subtasks  # noqa: PLC0415

            vertex_of = {task: v for v in self.plan.vertices for task in v.subtasks}
            self.loaded = await restore_subtasks(
                states,
                store=self.plan.resumption.origin or self.store,
                effects=self.effects,
                config=self.config.restore,
                memory=self.config.memory,
                progress=self.progress,
                directory=self.directory,
                factory=lambda task: self.factory(vertex_of[task]),
            )
        self.progress.finish()
        await together(
            [self._create(v, s) for v in self.plan.vertices for s in v.subtasks], _AT_ONCE
        )

    async def _create(self, vertex: Vertex, task: SubtaskId) -> None:
        """An empty table, away from the event loop: RocksDB waits for the disk meanwhile."""
        if task not in self.loaded and task not in self.plan.finished:
            create, directory = self.factory(vertex).create, self.directory / str(task)
            self.created[task] = await self.effects.offload.run_to_end(create, directory)

    def build(self, task: SubtaskId, vertex: Vertex, registry: StateRegistry) -> Subtask:
        """What keeps a subtask's state; that of a finished one is empty and has no log."""
        loaded, finished = self.loaded.pop(task, None), task in self.plan.finished
        state = None if finished else self.plan.state_of(task)
        factory = MemoryTableFactory() if finished else self.factory(vertex)
        if self._whole(task) and loaded is not None:
            loaded = replace(loaded, ranges=(), inline=(), known={})
        log = None if finished else self._log(task, loaded, state)
        table = loaded.table if loaded else self.created.pop(task, None)
        table = table or factory.create(self.directory / str(task))
        snapshots = self._snapshots(task, factory.kind, table, loaded)
        backend = self._backend(task, vertex, registry, table, log)
        if state is not None:
            backend.seqno, backend.updates = state.seqno, state.updates
            backend.event_time = EventTime.restored(state.watermark, state.ahead)
        start = state.start if state is not None else SeqNo(0)
        subtask = self.subtasks[task] = Subtask(
            backend,
            snapshots,
            TableSnapshotter(backend, snapshots, start)
            if log is None
            else LogSnapshotter(backend, log, snapshots),
            CanonicalSnapshotter(backend, snapshots, factory, self._rows),
            self._materializer(backend, log, snapshots)
            if log is not None and self.config.materialize.enabled
            else None,
        )
        return subtask

    async def release(self, task: SubtaskId) -> None:
        """A subtask exited: its table goes, and the files of it on local disk."""
        subtask = self.subtasks[task]
        subtask.released = True
        await self.effects.offload.run(subtask.backend.table.close)
        for directory in (self.directory / str(task), subtask.snapshots.directory):
            await self.effects.offload.run(shutil.rmtree, directory, True)

    def _backend(
        self,
        task: SubtaskId,
        vertex: Vertex,
        registry: StateRegistry,
        table: Table,
        log: SubtaskLog | None,
    ) -> KeyedBackend:
        return KeyedBackend(
            registry=registry,
            key_groups=self.config.key_groups,
            owned=range_of(task.subtask, self.config.key_groups, vertex.parallelism),
            table=table,
            log=log if log is not None else NoLog(),
            now_ms=self.effects.clock.now_ms,
            monotonic=self.effects.clock.monotonic,
            config=self.config.flush,
            cadence=self.cadence,
            memory=self.resources.rows,
        )

    def _snapshots(
        self, task: SubtaskId, kind: str, table: Table, loaded: "RestoredSubtask | None"
    ) -> TableSnapshots:
        return TableSnapshots(
            store=self.store,
            effects=self.effects,
            ledger=self.ledger,
            generation=self.generation,
            operator=task.operator,
            subtask=task.subtask,
            table=table,
            table_kind=kind,
            directory=self.directory / f"{task}-snapshots",
            upload_slots=self.upload_slots,
            known=dict(loaded.known) if loaded else {},
            copies=self.copies,
        )

    def _log(
        self, task: SubtaskId, loaded: "RestoredSubtask | None", state: SubtaskState | None
    ) -> SubtaskLog | None:
        if self.uploader is None:
            return None
        chain = SubtaskLogChain(task.operator, task.subtask, loaded.ranges if loaded else ())
        if self._whole(task) and state is not None:
            base = Base(start=state.start)
            return SubtaskLog(self.uploader, chain, base, complete=False)
        log = SubtaskLog(self.uploader, chain, Base.of(state) if state else Base())
        # Blocks that lived in the manifest are not in any segment yet.
        for block in loaded.inline if loaded else ():
            log.submit_metadata(block)
        return log

    def _whole(self, task: SubtaskId) -> bool:
        """The subtask's first checkpoint cannot refer to stored objects: it is a whole one."""
        return self.plan.resumption.detached or task.operator in self.plan.migrated

    def _materializer(
        self, backend: KeyedBackend, log: SubtaskLog, snapshots: TableSnapshots
    ) -> Materializer:
        return Materializer(
            backend=backend,
            log=log,
            snapshots=snapshots,
            config=self.config.materialize,
            effects=self.effects,
            turns=self.resources.turns,
            rank=self.resources.rank(),
            subtasks=self.resources.subtasks,
        )

    def factory(self, vertex: Vertex) -> TableFactory:
        """Makes the tables of a vertex."""
        return self.resources.factory(self.config.table_of(keyed=vertex.head.keyed))
