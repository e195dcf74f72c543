"""Restore equality: every completed checkpoint, restored beside the run, has what every subtask's
table held when its barrier passed.

Invariants: rows are copied at the moment the snapshot was captured, before the task goes on; of
what a channel holds behind a barrier a task takes no record before that snapshot; a restore reads
the objects as they were when the slot was taken, and nothing else.
"""

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

from tests.simulator.checks.violation import Property, Violation
from tests.simulator.machine.process import Process, effects_of
from tidelog import Checkpoint, Savepoint, TidelogError
from tidelog.checkpoint.manifest import SubtaskState
from tidelog.ids import CheckpointId, Generation, SeqNo, SubtaskId
from tidelog.runtime.channels.messages import Barrier, Batch
from tidelog.runtime.runner import JobRunner
from tidelog.runtime.snapshots.snapshotter import PendingSnapshot, SubtaskPosition
from tidelog.runtime.tasks.stream_task import StreamTask
from tidelog.runtime.tasks.task import Task
from tidelog.state.backend import KeyedBackend
from tidelog.state.recovery.progress import RestoreProgress
from tidelog.state.recovery.restorer import Restorer
from tidelog.storage.memory import MemoryStore
from tidelog.table.hydrating import HydratingTable
from tidelog.table.memory import MemoryTableFactory
from tidelog.table.port import Table, TableFactory
from tidelog.table.rocksdb_factory import RocksTableFactory

Rows = dict[bytes, bytes]
_LOOKS: Final = 4
_NO_CHANGE: Final = SeqNo(0)


@dataclass(frozen=True, slots=True)
class AtBarrier:
    seqno: SeqNo
    rows: Rows | None
    """None: not looked at, for a look would fetch what the table lacks."""
    checkpointed: SeqNo
    """Changes below were in a checkpoint that had completed, as far as the subtask knew."""


@dataclass(slots=True)
class Barriers:
    """All barriers of a run, by incarnation and checkpoint."""

    blame: Callable[[str], None] | None
    """Called when a snapshot holds records from behind its barrier; None: at least once."""
    seen: dict[tuple[Generation, CheckpointId], dict[SubtaskId, AtBarrier]] = field(
        default_factory=dict
    )

    def of(self, checkpoint: Checkpoint) -> dict[SubtaskId, AtBarrier]:
        """What its subtasks had."""
        return self.seen.get((checkpoint.author.generation, checkpoint.checkpoint_id), {})

    def watch(self, runner: JobRunner, tasks: Iterable[Task]) -> None:
        """Copy the rows of every subtask of an incarnation at each of its barriers."""
        assert runner.generation is not None
        for task in tasks:
            parts: Any = task.parts
            taken = _Taken()
            if isinstance(task, StreamTask):
                taken.watch(task)
            of_task = (parts.backend, self, runner.generation, task.id, taken)
            parts.snapshotter = _Watched(parts.snapshotter, *of_task)
            parts.canonical = _Watched(parts.canonical, *of_task)


class _Taken:
    """What a task has taken from its channels since their last barriers."""

    def __init__(self) -> None:
        self._behind: dict[int, tuple[CheckpointId, int]] = {}
        """For each channel: the last barrier, and the number of records taken since."""

    def watch(self, task: StreamTask) -> None:
        """Look at everything that the gate delivers from now on."""
        gate: Any = task.gate
        gate.get = self._looking_at(gate.get)
        gate.interruption = self._looking_at(gate.interruption)

    def _looking_at(self, deliver: Callable[[], Any]) -> Callable[[], Any]:
        async def delivered() -> Any:
            received = await deliver()
            if type(received) is tuple:
                channel, message = received
                if type(message) is Barrier:
                    self._behind[channel] = (message.checkpoint, 0)
                elif type(message) is Batch and channel in self._behind:
                    checkpoint, count = self._behind[channel]
                    self._behind[channel] = (checkpoint, count + len(message.records))
            return received

        return delivered

    def behind(self, checkpoint: CheckpointId) -> int:
        """Records taken that came behind a barrier, or behind a later one."""
        return sum(count for last, count in self._behind.values() if last >= checkpoint)


@dataclass(slots=True)
class _Watched:
    """A snapshotter that shows what it captures."""

    inner: Any
    backend: KeyedBackend
    barriers: Barriers
    generation: Generation
    task: SubtaskId
    taken: _Taken
    _captured: dict[CheckpointId, SeqNo] = field(default_factory=dict)
    _checkpointed: SeqNo = _NO_CHANGE

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def capture(self, checkpoint: CheckpointId, position: SubtaskPosition) -> PendingSnapshot:
        behind, blame = self.taken.behind(checkpoint), self.barriers.blame
        if behind and blame is not None:
            blame(f"{self.task} took {behind} records behind barrier {checkpoint} before it")
        pending: PendingSnapshot = await self.inner.capture(checkpoint, position)
        # A look fetches all that the table lacks: only at some barriers before it is whole.
        looks = is_whole(self.backend.table) or checkpoint % _LOOKS == 0
        rows = _flushed_rows(self.backend) if looks else None
        tasks = self.barriers.seen.setdefault((self.generation, checkpoint), {})
        tasks[self.task] = AtBarrier(self.backend.seqno, rows, self._checkpointed)
        self._captured[checkpoint] = self.backend.seqno
        return pending

    def completed(self, checkpoint: CheckpointId) -> None:
        self._checkpointed = max(self._checkpointed, self._captured.get(checkpoint, SeqNo(0)))
        self.inner.completed(checkpoint)


def is_whole(table: Table) -> bool:
    """Whether all files of a table are on its disk."""
    return not isinstance(table, HydratingTable) or table._is_whole


def _flushed_rows(backend: KeyedBackend) -> dict[bytes, bytes]:
    """All rows as of a flush that has just ended: the table's, and those that it does not have."""
    rows = dict(backend.table.scan(b"", None))
    for state in backend.buffer._states:
        for key, value in zip(*state._columns(list(set(state._dirty))), strict=True):
            if value is None:
                rows.pop(key, None)
            else:
                rows[key] = value
    return rows


@dataclass(frozen=True, slots=True)
class Completed:
    """A checkpoint as it was when its slot was taken."""

    entry: Checkpoint
    objects: Mapping[str, bytes]
    whole: bool = True
    """False: the store had lost something that it needs."""


async def check_restores(
    completed: Sequence[Completed], barriers: Barriers, directory: Path
) -> Violation | None:
    """Restore all checkpoints; the first difference found, oldest checkpoint first."""
    for checkpoint in filter(lambda each: each.whole, completed):
        entry, store = checkpoint.entry, MemoryStore("sim://beside")
        for name, data in checkpoint.objects.items():
            await store.put(name, data)
        at_barrier = barriers.of(entry)
        # A canonical savepoint numbers its rows anew.
        numbered = not (isinstance(entry, Savepoint) and entry.savepoint_format == "canonical")
        for operator, state in entry.subtasks():
            task = SubtaskId(operator.id, state.index)
            if state.finished and task not in at_barrier:
                continue  # It had exited before, and no barrier reached it any more.
            found = await _restored(store, state, directory / "beside", str(task))
            wrong = _difference(at_barrier.get(task), state, found, numbered=numbered)
            if wrong is not None:
                return Violation(Property.RESTORE, f"slot {entry.slot}, {task}: {wrong}")
    return None


def _difference(
    expected: AtBarrier | None, state: SubtaskState, found: Rows | TidelogError, *, numbered: bool
) -> str | None:
    if isinstance(found, TidelogError):
        return f"it cannot be restored: {found}"
    if expected is None:
        return "no barrier passed there"
    if numbered and state.seqno != expected.seqno:
        return f"sequence number {state.seqno}, at the barrier {expected.seqno}"
    if expected.rows is None:
        return None
    keys = sorted(expected.rows.keys() | found.keys())
    wrong = [key for key in keys if expected.rows.get(key) != found.get(key)]
    if not wrong:
        return None
    key = wrong[0]
    return (
        f"{len(wrong)} of {len(keys)} rows differ, as {key!r}: at the barrier "
        f"{expected.rows.get(key)!r}, restored {found.get(key)!r}"
    )


async def _restored(
    store: MemoryStore, state: SubtaskState, directory: Path, what: str
) -> Rows | TidelogError:
    effects = effects_of(Process("beside", Random(0)))
    rocksdb = state.table == "rocksdb"
    factory: TableFactory = RocksTableFactory() if rocksdb else MemoryTableFactory()
    progress = RestoreProgress.of(effects.clock, [state])
    try:
        restorer = Restorer(store, effects, factory, progress)
        table: Table = (await restorer.restore(state, directory, what)).table
        try:
            return dict(table.scan(b"", None))
        finally:
            # Before its files go: a RocksDB that cannot flush as it closes waits a second.
            table.close()
    except TidelogError as error:
        return error
    finally:
        shutil.rmtree(directory, ignore_errors=True)
