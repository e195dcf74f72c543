"""How a start goes on: which state each subtask loads, and which subtasks do not run again.

Invariant: it is made before anything is fenced or changed.
"""

from collections.abc import Mapping, Sequence

import msgspec

from tidelog.checkpoint.manifest import Checkpoint, OperatorState, SubtaskState
from tidelog.ids import SubtaskId
from tidelog.runtime.config import JobConfig
from tidelog.runtime.graph import Job
from tidelog.runtime.restore.choose import Resumption
from tidelog.runtime.subtasks.vertices import Vertex, compile_job
from tidelog.state.registry import StateRegistry, known_keys

Operators = Mapping[str, OperatorState]
"""Stored operators by their ids."""


class RestorePlan(msgspec.Struct, frozen=True):
    """The job as it goes on from a checkpoint, or begins."""

    resumption: Resumption
    vertices: list[Vertex]
    operators: Operators = msgspec.field(default_factory=dict)
    """Stored operators by vertex, as the job's subtasks load them."""
    migrated: frozenset[str] = frozenset()
    """Vertices whose restored keys or values are changed: their first checkpoint is whole."""
    finished: Mapping[SubtaskId, SubtaskState] = msgspec.field(default_factory=dict)
    """Subtasks that are not to run again."""
    dropped: tuple[str, ...] = ()
    """State that is not restored because its operator is gone, as reports show it."""

    @property
    def checkpoint(self) -> Checkpoint | None:
        return self.resumption.checkpoint

    def state_of(self, subtask: SubtaskId) -> SubtaskState | None:
        """What is stored for a subtask; None: nothing."""
        operator = self.operators.get(subtask.operator)
        return operator.subtasks[subtask.subtask] if operator is not None else None

    def loaded_by(self, subtask: SubtaskId) -> SubtaskState | None:
        """What a subtask loads; None: nothing, as it begins or has finished."""
        return None if subtask in self.finished else self.state_of(subtask)

    def registry_of(self, vertex: Vertex) -> StateRegistry:
        """A new registry of a vertex's states, with those that were stored."""
        stored, head = self.operators.get(vertex.id), vertex.head
        keys = known_keys(vertex.id, stored, head.key_types)
        return StateRegistry(vertex.id, stored.states if stored else (), keys, head.value_types)


def begin(job: Job, resumption: Resumption, config: JobConfig) -> RestorePlan:
    """The plan of a job that begins with nothing; raises ConfigError."""
    vertices = compile_job(job, config.parallelism)
    check_parallelism(vertices, config)
    return RestorePlan(resumption, vertices)


def check_parallelism(vertices: Sequence[Vertex], config: JobConfig) -> None:
    """Raises ConfigError for an operator without subtasks, or with one without key groups."""
    for vertex in vertices:
        config.check_parallelism(f"parallelism of {vertex.id!r}", vertex.parallelism)
