"""The operators of a manifest: what running subtasks acknowledged, and what finished ones left.

Invariant: every checkpoint marks each subtask that has finished, in this run or an earlier one, so
no restart runs it again.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tidelog.checkpoint.finished import exited_state
from tidelog.checkpoint.manifest import OperatorState, SubtaskState
from tidelog.ids import SubtaskId
from tidelog.runtime.subtasks.vertices import Vertex, sink_types, source_types
from tidelog.state.registry import StateRegistry


def predecessors(vertices: Iterable[Vertex]) -> dict[SubtaskId, list[SubtaskId]]:
    """Every subtask of the job with those that send to it directly."""
    return {
        subtask: [sender for upstream, _ in vertex.inputs for sender in upstream.subtasks]
        for vertex in vertices
        for subtask in vertex.subtasks
    }


@dataclass(slots=True)
class ManifestOperators:
    """Makes the operators of each manifest from the states of its subtasks."""

    vertices: Sequence[Vertex]
    registries: Mapping[str, StateRegistry]
    """The states that each vertex has declared, by the vertex's name."""
    key_groups: int
    finished: dict[SubtaskId, SubtaskState]
    """Subtasks that finished, with their state in the checkpoint that contains their finish."""

    def exited(self, states: Mapping[SubtaskId, SubtaskState]) -> None:
        """Note subtasks that exited: a completed checkpoint contains their finish."""
        self.finished.update(states)

    def of(self, acknowledged: Mapping[SubtaskId, SubtaskState]) -> tuple[OperatorState, ...]:
        """The operators of a manifest; `acknowledged` are the states of all running subtasks."""
        return tuple(self._operator(vertex, acknowledged) for vertex in self.vertices)

    def _operator(
        self, vertex: Vertex, acknowledged: Mapping[SubtaskId, SubtaskState]
    ) -> OperatorState:
        registry, finished, last = self.registries[vertex.id], self.finished, vertex.nodes[-1]
        running = not finished.keys() >= set(vertex.subtasks)
        # While others of a source run, a rescaled restart would read its finished splits again.
        positions = running and vertex.head.source is not None
        subtasks = tuple(
            exited_state(finished[subtask], positions=positions)
            if subtask in finished
            else acknowledged[subtask]
            for subtask in vertex.subtasks
        )
        over = all(state.finished for state in subtasks)
        return OperatorState(
            vertex.id,
            self.key_groups,
            registry.infos(),
            subtasks,
            chain=tuple(node.id for node in vertex.nodes[1:]) if over else None,
            key_types=registry.keys.names(),
            source_types=source_types(vertex),
            sink=last.id if last.sink is not None else "",
            sink_types=sink_types(vertex),
        )
