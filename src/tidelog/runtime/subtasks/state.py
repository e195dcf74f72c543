"""The state of all subtasks: restored or empty tables, their logs, backends and snapshots.

Invariants: what a restore loaded and what the new log chain continues are the same changes; all
that was opened for a subtask is closed once, when it exits or when the job ends.
"""

import logging
import shutil
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tidelog.changelog.chain import SubtaskLogChain
from tidelog.checkpoint.manifest import SubtaskState
from tidelog.concurrency import together
from tidelog.events import Event
from tidelog.ids import SeqNo, SubtaskId
from tidelog.materialize.materializer import Materializer
from tidelog.materialize.pacing import UploadSlots
from tidelog.materialize.table_snapshot import TableSnapshots
from tidelog.runtime.snapshots.canonical import CanonicalSnapshotter, RowUploads
from tidelog.runtime.snapshots.snapshotter import LogSnapshotter, Snapshotter, TableSnapshotter
from tidelog.runtime.subtasks.start import JobStart
from tidelog.runtime.subtasks.vertices import NONE, Vertex
from tidelog.runtime.user_code import close_all
from tidelog.state.backend import KeyedBackend
from tidelog.state.event_time import EventTime
from tidelog.state.key_groups import range_of
from tidelog.state.log import Base, NoLog, SubtaskLog
from tidelog.state.recovery.progress import RestoreProgress
from tidelog.table.memory import MemoryTableFactory
from tidelog.table.port import Table, TableFactory

if TYPE_CHECKING:
    from tidelog.state.recovery.hydration import Hydration, TableHydration
    from tidelog.state.recovery.restorer import RestoredSubtask
    from tidelog.state.recovery.serving import Serving

logger = logging.getLogger(__name__)

_CREATED_TOGETHER: Final = 4
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


class SubtaskStates:
    """Restores, builds and closes the state of every subtask of one start."""

    def __init__(self, start: JobStart) -> None:
        self.start = start
        states = self._stored(self._vertices_by_subtask())
        self.progress = RestoreProgress.of(start.effects.clock, states.values())
        self.subtasks: dict[SubtaskId, Subtask] = {}
        """The subtasks built so far, in the order of the job."""
        self.upload_slots = UploadSlots(start.effects.clock, start.cadence, start.resources.link)
        self._rows = RowUploads(start.savepoint_uploader)
        self._loaded: dict[SubtaskId, RestoredSubtask] = {}
        """What was restored for subtasks that are not built yet."""
        self._created: dict[SubtaskId, Table] = {}
        """The empty tables of subtasks that are not built yet and that nothing was restored for."""
        self._closers: dict[SubtaskId, list[Callable[[], None]]] = {}
        self.hydration: Hydration | None = None
        """Fetches the tables that serve before they are whole; None: there are none."""

    @property
    def materializers(self) -> list[Materializer]:
        """The materializers of the subtasks that have not exited."""
        materializers: list[Materializer] = []
        for subtask in self.subtasks.values():
            if subtask.materializer is not None and not subtask.released:
                materializers.append(subtask.materializer)
        return materializers

    def _restored(self, vertex: Vertex) -> Sequence[SubtaskId]:
        """The subtasks that are restored in this process: where keys are migrated, also those
        that rows come from.
        """
        share, plan = self.start.share, self.start.plan
        keys_migrate = vertex.id in plan.migrated and self.start.registries[vertex.id].keys.migrates
        return vertex.subtasks if keys_migrate and share != NONE else share.of(vertex.subtasks)

    def _vertices_by_subtask(self) -> dict[SubtaskId, Vertex]:
        """The vertex of each subtask that is restored in this process."""
        vertices: dict[SubtaskId, Vertex] = {}
        for vertex in self.start.plan.vertices:
            vertices |= dict.fromkeys(self._restored(vertex), vertex)
        return vertices

    def _stored(self, subtasks: Iterable[SubtaskId]) -> dict[SubtaskId, SubtaskState]:
        """What is loaded for those of these subtasks that do not begin and have not finished."""
        states = {subtask: self.start.plan.loaded_by(subtask) for subtask in subtasks}
        return {subtask: state for subtask, state in states.items() if state is not None}

    async def restore(self) -> None:
        """Load all stored subtasks that go on, in parallel, or none; others get empty tables."""
        plan, subtasks = self.start.plan, self._vertices_by_subtask()
        states = self._stored(subtasks)
        if states:
            # A job that begins loads nothing, and the modules that load are many.
            from tidelog.state.recovery.restorer import restore_subtasks  # noqa: PLC0415

            hydrated = self._hydrated(states, subtasks)
            self._loaded = await restore_subtasks(
                states,
                store=plan.resumption.origin or self.start.objects,
                effects=self.start.effects,
                config=self.start.config.restore,
                memory=self.start.config.memory,
                progress=self.progress,
                directory=self.start.directory,
                factory=lambda task: self._factory(subtasks[task]),
                descriptors={} if plan.resumption.origin else self.start.history.descriptors,
                serving=hydrated.get,
            )
        self.progress.finish()
        if plan.resumption.origin is None:
            for loaded in self._loaded.values():
                for name, descriptor in loaded.descriptors.items():
                    self.start.ledger.describe(name, descriptor.shared_bytes)
        creating: list[Coroutine[Any, Any, None]] = []
        for subtask, vertex in subtasks.items():
            if subtask not in states and subtask not in plan.finished:
                creating.append(self._create(vertex, subtask))
        await together(creating, _CREATED_TOGETHER)

    def _hydrated(
        self, states: Mapping[SubtaskId, SubtaskState], vertices: Mapping[SubtaskId, Vertex]
    ) -> "Mapping[SubtaskId, Serving]":
        """What opens the tables that serve before they are whole, by their subtasks."""
        start = self.start
        if start.config.restore.begin != "at-once":
            return {}
        from tidelog.runtime.subtasks.serving import is_small, refusal  # noqa: PLC0415  # few starts

        if is_small(start, states.values()):
            return {}
        hydrated: set[SubtaskId] = set()
        reasons: dict[str, str | None] = {}
        for task in states:
            vertex = vertices[task]
            if not vertex.head.keyed:
                continue
            if vertex.id not in reasons:
                reason = reasons[vertex.id] = refusal(start, vertex, self._factory(vertex))
                if reason is not None:
                    refusals = self.progress.hydration.refusals
                    refusals[reason] = refusals.get(reason, 0) + 1
                    Event.TABLES_LOADED_FIRST.log(logger, operator=vertex.id, reason=reason)
            if reasons[vertex.id] is None:
                hydrated.add(task)
        if not hydrated:
            return {}
        from tidelog.state.recovery.file_store import FileStore  # noqa: PLC0415  # few starts
        from tidelog.state.recovery.hydration import Hydration  # noqa: PLC0415
        from tidelog.state.recovery.reads import KeyReads  # noqa: PLC0415
        from tidelog.state.recovery.serving import Serving  # noqa: PLC0415

        hydration = self.hydration = Hydration.of(
            FileStore(start.objects, start.effects),
            self.progress,
            start.directory / "placeholders",
            start.config.restore.concurrency,
            start.copies,
        )
        registries, key_groups = start.registries, start.config.key_groups
        return {
            task: Serving(hydration, KeyReads(registries[task.operator].infos()), key_groups)
            for task in hydrated
        }

    async def _create(self, vertex: Vertex, task: SubtaskId) -> None:
        """An empty table, away from the event loop: RocksDB waits for the disk meanwhile."""
        create, directory = self._factory(vertex).create, self.start.directory / str(task)
        self._created[task] = await self.start.effects.offload.run_to_end(create, directory)

    async def migrate(self) -> None:
        """Change the restored keys and values that the job wants otherwise; they are in no log."""
        for vertex in self.start.plan.vertices:
            if vertex.id in self.start.plan.migrated:
                from tidelog.runtime.restore.migrate import Migration  # noqa: PLC0415  # rare

                restored = self._restored(vertex)
                tables = [self._loaded[subtask].table for subtask in restored]
                registry = self.start.registries[vertex.id]
                states = self.start.plan.migrations.get(vertex.id, ())
                migration = Migration(registry, states, self.start.config.key_groups, tables)
                await self.start.effects.offload.run(migration.run)
                for subtask in restored:
                    if not self.start.share.has(subtask.subtask):
                        await self._remove(subtask, self._loaded.pop(subtask).table)

    def build(self, task: SubtaskId, vertex: Vertex) -> Subtask:
        """What keeps a subtask's state; that of a finished one is empty and has no log."""
        plan = self.start.plan
        state, loaded = plan.loaded_by(task), self._loaded.pop(task, None)
        finished = task in plan.finished
        factory = MemoryTableFactory() if finished else self._factory(vertex)
        if self._whole(task) and loaded is not None:
            loaded = replace(loaded, ranges=(), inline=(), files_by_name={})
        log = None if finished else self._log(task, loaded, state)
        table = loaded.table if loaded else self._created.pop(task, None)
        table = table or factory.create(self.start.directory / str(task))
        snapshots = self._snapshots(task, factory.kind, table, loaded)
        backend = self._backend(task, vertex, table, log, loaded.hydration if loaded else None)
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
            if log is not None and self.start.config.materialize.enabled
            else None,
        )
        return subtask

    def opened(self, task: SubtaskId, close: Callable[[], None]) -> None:
        """Something more was opened for a subtask, to be closed with it."""
        self._closers.setdefault(task, []).append(close)

    async def release(self, task: SubtaskId) -> None:
        """A subtask exited: all that is open of it is closed, and its files on local disk go."""
        subtask = self.subtasks[task]
        self._close(task)
        if subtask.backend.hydration is not None:
            subtask.backend.hydration.close()
        subtask.backend.release()
        subtask.released = True
        await self._remove(task, subtask.backend.table)
        await self.start.effects.offload.run(shutil.rmtree, subtask.snapshots.directory, True)

    async def _remove(self, task: SubtaskId, table: Table) -> None:
        await self.start.effects.offload.run(table.close)
        await self.start.effects.offload.run(shutil.rmtree, self.start.directory / str(task), True)

    async def close(self, *, quietly: bool) -> None:
        """Close operators, sinks and tables, all of them even when one fails.

        `quietly` when there is an error already that says more than that of closing.
        """
        tables = [loaded.table for loaded in self._loaded.values()] + [*self._created.values()]
        for subtask in self.subtasks.values():
            if quietly or self.start.effects.frees_memory:  # a job that failed may start again
                subtask.backend.close()
            if not subtask.released:
                tables.append(subtask.backend.table)
        if self.hydration is not None:
            await self.hydration.close()
        job, offload = f"job {self.start.job.name!r}", self.start.effects.offload
        try:
            # Other jobs of the process go on while the disk is waited for.
            closing = [table.close for table in tables]
            await offload.run_to_end(close_all, job, closing, quietly=quietly)
        finally:
            closers = [partial(self._close, task) for task in self._closers]
            close_all(job, closers, quietly=quietly)

    def _close(self, task: SubtaskId) -> None:
        close_all(str(task), self._closers.pop(task, ()), quietly=False)

    def _backend(
        self,
        task: SubtaskId,
        vertex: Vertex,
        table: Table,
        log: SubtaskLog | None,
        hydration: "TableHydration | None",
    ) -> KeyedBackend:
        start, config = self.start, self.start.config
        return KeyedBackend(
            registry=start.registries[vertex.id],
            key_groups=config.key_groups,
            owned=range_of(task.subtask, config.key_groups, vertex.parallelism),
            table=table,
            log=log if log is not None else NoLog(),
            now_ms=start.effects.clock.now_ms,
            monotonic=start.effects.clock.monotonic,
            config=config.flush,
            cadence=start.cadence,
            memory=start.resources.rows,
            hydration=hydration,
        )

    def _snapshots(
        self, task: SubtaskId, kind: str, table: Table, loaded: "RestoredSubtask | None"
    ) -> TableSnapshots:
        start = self.start
        return TableSnapshots(
            store=start.objects,
            effects=start.effects,
            ledger=start.ledger,
            generation=start.author.generation,
            operator=task.operator,
            subtask=task.subtask,
            table=table,
            table_kind=kind,
            directory=start.directory / f"{task}-snapshots",
            upload_slots=self.upload_slots,
            stored_files=dict(loaded.files_by_name) if loaded else {},
            copies=start.copies,
            hydration=loaded.hydration if loaded else None,
        )

    def _log(
        self, task: SubtaskId, loaded: "RestoredSubtask | None", state: SubtaskState | None
    ) -> SubtaskLog | None:
        uploader = self.start.log_uploader
        if uploader is None:
            return None
        chain = SubtaskLogChain(task.operator, task.subtask, loaded.ranges if loaded else ())
        if self._whole(task) and state is not None:
            return SubtaskLog(uploader, chain, Base(start=state.start), complete=False)
        log = SubtaskLog(uploader, chain, Base.of(state) if state else Base())
        # Blocks that lived in the manifest are not in any segment yet.
        for block in loaded.inline if loaded else ():
            log.submit_metadata(block)
        return log

    def _whole(self, task: SubtaskId) -> bool:
        """The subtask's first checkpoint cannot refer to stored objects: it is a whole one."""
        plan = self.start.plan
        return plan.resumption.detached or task.operator in plan.migrated

    def _materializer(
        self, backend: KeyedBackend, log: SubtaskLog, snapshots: TableSnapshots
    ) -> Materializer:
        resources = self.start.resources
        return Materializer(
            backend=backend,
            log=log,
            snapshots=snapshots,
            config=self.start.config.materialize,
            effects=self.start.effects,
            turns=resources.turns,
            rank=resources.rank(),
            subtasks=resources.subtasks,
        )

    def _factory(self, vertex: Vertex) -> TableFactory:
        kind = self.start.config.table_of(keyed=vertex.head.keyed)
        return self.start.resources.factory(kind)
