"""What every subtask's table held when a barrier passed: the model that restores must equal.

Invariant: rows are copied at the moment the snapshot was captured, before the task goes on.
"""

from dataclasses import dataclass, field
from typing import Any

from tidelog.ids import CheckpointId, Generation, SeqNo
from tidelog.runtime.runner import JobRunner
from tidelog.runtime.snapshot import PendingSnapshot, Snapshotter, SubtaskPosition
from tidelog.runtime.tasks.parts import TaskId
from tidelog.state.backend import KeyedBackend

Rows = dict[bytes, bytes]


@dataclass(frozen=True, slots=True)
class AtBarrier:
    """One subtask at a barrier."""

    seqno: SeqNo
    rows: Rows


@dataclass(slots=True)
class Barriers:
    """All barriers of a run, by incarnation and checkpoint."""

    seen: dict[tuple[Generation, CheckpointId], dict[TaskId, AtBarrier]] = field(
        default_factory=dict
    )

    def watch(self, runner: JobRunner) -> None:
        """Copy the rows of every subtask of an incarnation at each of its barriers."""
        assert runner.deployment is not None and runner.generation is not None
        for task in runner.deployment.tasks:
            parts = task.parts
            generation, backend = runner.generation, parts.backend
            parts.snapshotter = _Watched(parts.snapshotter, backend, self, generation, task.id)
            canonical: Any = _Watched(parts.canonical, backend, self, generation, task.id)
            parts.canonical = canonical


@dataclass(frozen=True, slots=True)
class _Watched:
    """A snapshotter that shows what it captures."""

    inner: Snapshotter
    backend: KeyedBackend
    barriers: Barriers
    generation: Generation
    task: TaskId

    async def capture(self, checkpoint: CheckpointId, position: SubtaskPosition) -> PendingSnapshot:
        pending = await self.inner.capture(checkpoint, position)
        rows = dict(self.backend.table.scan(b"", None))
        tasks = self.barriers.seen.setdefault((self.generation, checkpoint), {})
        tasks[self.task] = AtBarrier(self.backend.seqno, rows)
        return pending

    def completed(self, checkpoint: CheckpointId) -> None:
        self.inner.completed(checkpoint)

    def objects(self) -> set[str]:
        return self.inner.objects()
