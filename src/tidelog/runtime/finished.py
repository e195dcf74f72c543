"""The subtasks of a job that have finished for good, in this run or an earlier one.

Invariant: every checkpoint says of each of them that it finished, so no restart runs it again.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import msgspec

from tidelog.checkpoint.finished import exited_state, fully_finished
from tidelog.checkpoint.manifest import OperatorState, SubtaskState
from tidelog.runtime.graph import Vertex
from tidelog.runtime.tasks.parts import TaskId


def predecessors(vertices: Collection[Vertex]) -> dict[TaskId, list[TaskId]]:
    """Every task of the job with those that send to it directly."""
    return {
        TaskId(vertex.id, index): [
            TaskId(upstream.id, other)
            for upstream, _ in vertex.inputs
            for other in range(upstream.parallelism)
        ]
        for vertex in vertices
        for index in range(vertex.parallelism)
    }


def with_chain(operator: OperatorState, vertex: Vertex) -> OperatorState:
    """An operator that finished names those that finished with it."""
    if not fully_finished(operator):
        return operator
    return msgspec.structs.replace(operator, chain=tuple(node.id for node in vertex.nodes[1:]))


def finished_subtasks(
    vertices: Collection[Vertex], stored: Mapping[str, OperatorState], *, shared: bool
) -> dict[TaskId, SubtaskState]:
    """The subtasks of restored operators that are not to run again.

    Where checkpoints to come cannot refer to what was restored, it not being `shared`, subtasks of
    a source run again whose positions they must hold: these say that there is nothing to read.
    """
    finished = {}
    for vertex in vertices:
        operator = stored.get(vertex.id)
        if operator is None or (not shared and vertex.head.source and not fully_finished(operator)):
            continue
        for subtask in operator.subtasks:
            if subtask.finished:
                finished[TaskId(vertex.id, subtask.index)] = subtask
    return finished


@dataclass(slots=True)
class FinishedSubtasks:
    """Their states, as the checkpoint has them that contains their finish."""

    vertices: list[Vertex]
    _states: dict[TaskId, SubtaskState] = field(default_factory=dict)

    def add(self, states: Mapping[TaskId, SubtaskState]) -> None:
        """These subtasks exited, or were restored as finished."""
        self._states.update(states)

    def complete(self, running: Mapping[TaskId, SubtaskState]) -> dict[TaskId, SubtaskState]:
        """The states of all subtasks for a manifest: of the running ones, and of these."""
        states = dict(running)
        for vertex in self.vertices:
            tasks = [TaskId(vertex.id, index) for index in range(vertex.parallelism)]
            partial = not all(task in self._states for task in tasks)
            for task in tasks:
                if task in self._states:
                    positions = partial and vertex.head.source is not None
                    states[task] = exited_state(self._states[task], positions=positions)
        return states
