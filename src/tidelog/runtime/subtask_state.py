"""The state of a subtask: restored or empty table, log chain, backend and snapshotter.

Invariant: what a restore loaded and what the new log chain continues are the same changes.
"""

import asyncio
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from tidelog.checkpoint.manifest import OperatorState, SubtaskState
from tidelog.dstl.cadence import Cadence
from tidelog.dstl.chain import LogChain
from tidelog.dstl.uploader import Uploader
from tidelog.effects import Effects
from tidelog.ids import Generation, SeqNo
from tidelog.materialize.pacing import Pace
from tidelog.materialize.snapshot import TableSnapshots
from tidelog.runtime.canonical import CanonicalSnapshotter, RowUploads
from tidelog.runtime.config import JobConfig
from tidelog.runtime.graph import Vertex
from tidelog.runtime.materializing import Materializer
from tidelog.runtime.snapshot import LogSnapshotter, Snapshotter, TableSnapshotter
from tidelog.runtime.tasks.parts import TaskId
from tidelog.state.backend import KeyedBackend
from tidelog.state.key_groups import range_of
from tidelog.state.log import Base, NoLog, SubtaskLog
from tidelog.state.progress import RestoreProgress
from tidelog.state.registry import StateRegistry
from tidelog.state.restore import RestoredSubtask, Restorer
from tidelog.storage.ledger import Ledger
from tidelog.storage.port import ObjectStore
from tidelog.table.memory import MemoryTableFactory
from tidelog.table.port import Table, TableFactory
from tidelog.table.rocksdb import RocksTableFactory


@dataclass(slots=True)
class SubtaskStates:
    """Builds the state of every subtask of one incarnation."""

    config: JobConfig
    store: ObjectStore
    effects: Effects
    generation: Generation
    ledger: Ledger
    uploader: Uploader | None
    """None: the changelog is off."""
    cadence: Cadence
    directory: Path
    progress: RestoreProgress
    origin: ObjectStore | None = None
    """Where the restored checkpoint is; None: in the store."""
    detached: bool = False
    """The restored state shares no objects with this incarnation: the first checkpoint is whole."""
    finished: frozenset[TaskId] = frozenset()
    """Subtasks that need no state any more."""
    materializers: list[Materializer] = field(default_factory=list)
    snapshots: list[TableSnapshots] = field(default_factory=list)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _rows: RowUploads = field(init=False)
    _pace: Pace = field(init=False)
    """One for all subtasks: they share the bandwidth."""
    _factories: dict[str, TableFactory] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._pace = Pace(self.effects.clock, self.config.materialize.bytes_per_s)
        self._rows = RowUploads(
            self.store, self.effects, self.ledger, self.generation, self.config.upload
        )

    async def restore(
        self, vertices: list[Vertex], stored: dict[str, OperatorState]
    ) -> dict[TaskId, RestoredSubtask]:
        """Load all stored subtasks that go on, in parallel; when one fails none stays open."""
        loading: dict[TaskId, asyncio.Task[RestoredSubtask]] = {}
        for vertex in vertices:
            restorer = Restorer(
                self.origin or self.store,
                self.effects,
                self._factory(vertex),
                self.progress,
                self.config.restore,
                self.directory / f"{vertex.id}-staging",
            )
            for state in stored[vertex.id].subtasks if vertex.id in stored else ():
                task = TaskId(vertex.id, state.index)
                if task in self.finished:
                    continue
                restoring = restorer.restore(state, self.directory / str(task), str(task))
                loading[task] = asyncio.ensure_future(restoring)
        try:
            restored = await asyncio.gather(*loading.values())
        except BaseException:
            await _discard(loading.values())
            raise
        for vertex in vertices:
            staging = self.directory / f"{vertex.id}-staging"
            await self.effects.offload.run(shutil.rmtree, staging, True)
        self.progress.finish()
        return dict(zip(loading, restored, strict=True))

    def build(
        self,
        task: TaskId,
        vertex: Vertex,
        registry: StateRegistry,
        state: SubtaskState | None,
        loaded: RestoredSubtask | None,
        *,
        subtasks: int,
    ) -> tuple[KeyedBackend, Snapshotter, CanonicalSnapshotter]:
        """A subtask's backend and what takes its snapshots; `subtasks` is the job's number."""
        if self.detached and loaded is not None:
            loaded = replace(loaded, ranges=(), inline=(), known={})
        snapshots = self._snapshots(task, self._factory(vertex), loaded)
        log = self._log(task, loaded, state)
        backend = self._backend(task, vertex, registry, snapshots.table, log)
        if state is not None:
            backend.seqno, backend.updates = state.seqno, state.updates
        rows = CanonicalSnapshotter(backend, snapshots, self._factory(vertex), self._rows)
        if log is None:
            start = state.start if state is not None else SeqNo(0)
            return backend, TableSnapshotter(backend, snapshots, start), rows
        self._materialize(backend, log, snapshots, subtasks)
        return backend, LogSnapshotter(backend, log, snapshots), rows

    def build_finished(
        self, task: TaskId, vertex: Vertex, registry: StateRegistry
    ) -> tuple[KeyedBackend, Snapshotter, CanonicalSnapshotter]:
        """For a subtask that only says that it finished: an empty table, no log."""
        factory = MemoryTableFactory()
        snapshots = self._snapshots(task, factory, None)
        backend = self._backend(task, vertex, registry, snapshots.table, None)
        rows = CanonicalSnapshotter(backend, snapshots, factory, self._rows)
        return backend, TableSnapshotter(backend, snapshots, SeqNo(0)), rows

    def materializer(self, task: TaskId) -> Materializer | None:
        """What materializes a subtask's table; None when nothing does."""
        for materializer in self.materializers:
            if _belongs(materializer.snapshots, task):
                return materializer
        return None

    def open_tables(self) -> list[Table]:
        """Tables that nobody has released."""
        return [snapshots.table for snapshots in self.snapshots if not snapshots.released]

    async def release(self, task: TaskId) -> None:
        """A subtask exited: its table goes, and the files of it on local disk."""
        for snapshots in self.snapshots:
            if _belongs(snapshots, task) and not snapshots.released:
                snapshots.released = True
                await self.effects.offload.run(snapshots.table.close)
                for directory in (self.directory / str(task), snapshots.directory):
                    await self.effects.offload.run(shutil.rmtree, directory, True)
        self.materializers = [m for m in self.materializers if not _belongs(m.snapshots, task)]

    def _backend(
        self,
        task: TaskId,
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
        )

    def _snapshots(
        self, task: TaskId, factory: TableFactory, loaded: RestoredSubtask | None
    ) -> TableSnapshots:
        table = loaded.table if loaded else factory.create(self.directory / str(task))
        snapshots = TableSnapshots(
            store=self.store,
            effects=self.effects,
            ledger=self.ledger,
            generation=self.generation,
            operator=task.vertex,
            subtask=task.subtask,
            table=table,
            table_kind=factory.kind,
            directory=self.directory / f"{task}-snapshots",
            known=dict(loaded.known) if loaded else {},
        )
        self.snapshots.append(snapshots)
        return snapshots

    def _log(
        self, task: TaskId, loaded: RestoredSubtask | None, state: SubtaskState | None
    ) -> SubtaskLog | None:
        if self.uploader is None:
            return None
        chain = LogChain(task.vertex, task.subtask, loaded.ranges if loaded else ())
        if self.detached and state is not None:
            base = Base(start=state.start)
            return SubtaskLog(self.uploader, chain, base, complete=False)
        log = SubtaskLog(self.uploader, chain, Base.of(state) if state else Base())
        # Blocks that lived in the manifest are not in any segment yet.
        for block in loaded.inline if loaded else ():
            log.submit_metadata(block)
        return log

    def _materialize(
        self, backend: KeyedBackend, log: SubtaskLog, snapshots: TableSnapshots, subtasks: int
    ) -> None:
        self.materializers.append(
            Materializer(
                backend=backend,
                log=log,
                snapshots=snapshots,
                config=self.config.materialize,
                effects=self.effects,
                cadence=self.cadence,
                pace=self._pace,
                turn=self._turn,
                rank=len(self.materializers),
                subtasks=subtasks,
            )
        )

    def _factory(self, vertex: Vertex) -> TableFactory:
        kind = self.config.table_of(keyed=vertex.head.keyed)
        if kind not in self._factories:
            # One factory for all tables of a kind: they share cache and write-buffer budget.
            self._factories[kind] = (
                RocksTableFactory() if kind == "rocksdb" else MemoryTableFactory()
            )
        return self._factories[kind]


def _belongs(snapshots: TableSnapshots, task: TaskId) -> bool:
    return (snapshots.operator, snapshots.subtask) == (task.vertex, task.subtask)


async def _discard(loading: Iterable[asyncio.Task[RestoredSubtask]]) -> None:
    for restoring in loading:
        restoring.cancel()
    for ended in await asyncio.gather(*loading, return_exceptions=True):
        if isinstance(ended, RestoredSubtask):
            ended.table.close()
