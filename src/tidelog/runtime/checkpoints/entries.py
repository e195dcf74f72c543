"""What manifests say of a job's operators, from what its tasks have acknowledged. Pure.

Invariant: a subtask that has exited has the state of its end once, in the manifest that contains
it, and a mark in all later ones.
"""

from collections.abc import Iterable, Mapping
from itertools import chain

from tidelog.checkpoint.finished import exited_state
from tidelog.checkpoint.formats import above_first
from tidelog.checkpoint.manifest import OperatorState, SubtaskState
from tidelog.ids import SubtaskId
from tidelog.runtime.subtasks.start import JobStart
from tidelog.runtime.subtasks.vertices import Vertex, sink_types, source_types
from tidelog.state.meaning import stored_meaning


def predecessors(vertices: Iterable[Vertex]) -> dict[SubtaskId, tuple[SubtaskId, ...]]:
    """Every subtask of the job with those that send to it directly."""
    senders: dict[SubtaskId, tuple[SubtaskId, ...]] = {}
    for vertex in vertices:
        before = chain.from_iterable(upstream.subtasks for upstream in vertex.upstreams)
        senders |= dict.fromkeys(vertex.subtasks, tuple(before))
    return senders


def operators_of(
    start: JobStart,
    acknowledged: Mapping[SubtaskId, SubtaskState],
    exited: Mapping[SubtaskId, SubtaskState],
) -> tuple[OperatorState, ...]:
    """All operators of the job; `exited` subtasks are those of earlier checkpoints."""
    return tuple(_operator(start, vertex, acknowledged, exited) for vertex in start.plan.vertices)


def _operator(
    start: JobStart,
    vertex: Vertex,
    acknowledged: Mapping[SubtaskId, SubtaskState],
    exited: Mapping[SubtaskId, SubtaskState],
) -> OperatorState:
    registry = start.registries[vertex.id]
    last = vertex.nodes[-1]
    running = not exited.keys() >= set(vertex.subtasks)
    # While others of a source run, a rescaled restart would read its finished splits again.
    positions = running and vertex.head.source is not None
    subtasks = tuple(
        exited_state(exited[subtask], positions=positions)
        if subtask in exited
        else acknowledged[subtask]
        for subtask in vertex.subtasks
    )
    finished_all = all(state.finished for state in subtasks)
    return OperatorState(
        vertex.id,
        start.config.key_groups,
        registry.infos(),
        subtasks,
        chain=tuple(node.id for node in vertex.nodes[1:]) if finished_all else None,
        key_types=registry.keys.names(),
        source_types=source_types(vertex),
        sink=last.id if last.sink is not None else "",
        sink_types=sink_types(vertex),
        meaning=stored_meaning(vertex.head.meaning),
        formats=above_first(vertex.formats),
    )
