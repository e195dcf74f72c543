"""Operators that share a task with others than before: pure.

With another parallelism an operator may be chained to its input, or not any more. Invariants: an
operator that stands alone no longer takes no state with it, for only the first of a chain has
any; what a sink has pre-committed stays with that sink, whichever task runs it.
"""

from collections.abc import Iterable, Mapping

import msgspec

from tidelog.checkpoint.manifest import OperatorState, SubtaskState
from tidelog.errors import RestoreError
from tidelog.ids import SeqNo
from tidelog.runtime.graph import Vertex
from tidelog.state.key_groups import range_of
from tidelog.state.redistribute import successor

_NOTHING = SeqNo(0)


def rechain(
    stored: Mapping[str, OperatorState], vertices: Iterable[Vertex]
) -> dict[str, OperatorState]:
    """The stored operators by the vertices that go on with them; each operator is a node of one.

    Raises RestoreError when state or transactions have nowhere to go.
    """
    vertices = list(vertices)
    home = {node.id: vertex for vertex in vertices for node in vertex.nodes}
    kept = {name: operator for name, operator in stored.items() if home[name].id == name}
    for name, operator in stored.items():
        if name not in kept and operator.states:
            raise _no_longer(name, "state", "the first of a chain of operators")
        held = {piece.operator for state in operator.subtasks for piece in state.operator_state}
        if held - {node.id for node in home[name].nodes if name in kept}:
            raise _no_longer(name, "operator state", f"chained to {', '.join(sorted(held))}")
        if any(state.transactions for state in operator.subtasks):
            sink = _sink_behind(home[name], vertices)
            if sink is None:
                raise _no_longer(name, "sink transactions", "one that ends in a sink")
            if sink.id != name:
                if name in kept:
                    kept[name] = _without_transactions(kept[name])
                given = kept.get(sink.id) or _empty(sink, operator.key_groups)
                kept[sink.id] = _with_transactions(given, operator)
    return kept


def _sink_behind(vertex: Vertex, vertices: Iterable[Vertex]) -> Vertex | None:
    """The vertex with the sink that a chain from here on could end in."""
    while vertex.nodes[-1].sink is None:
        followers = [v for v in vertices if any(upstream is vertex for upstream, _ in v.inputs)]
        if len(followers) != 1 or [edge.routing for _, edge in followers[0].inputs] != ["forward"]:
            return None
        vertex = followers[0]
    return vertex


def _empty(vertex: Vertex, key_groups: int) -> OperatorState:
    owned = [range_of(i, key_groups, vertex.parallelism) for i in range(vertex.parallelism)]
    subtasks = tuple(
        SubtaskState(index, groups.first, groups.last, _NOTHING, "memory")
        for index, groups in enumerate(owned)
    )
    return OperatorState(vertex.id, key_groups, (), subtasks)


def _without_transactions(operator: OperatorState) -> OperatorState:
    subtasks = (msgspec.structs.replace(state, transactions=()) for state in operator.subtasks)
    return msgspec.structs.replace(operator, subtasks=tuple(subtasks))


def _with_transactions(operator: OperatorState, of: OperatorState) -> OperatorState:
    subtasks = list(operator.subtasks)
    for state in of.subtasks:
        at = successor(state.index, len(subtasks))
        transactions = (*subtasks[at].transactions, *state.transactions)
        subtasks[at] = msgspec.structs.replace(subtasks[at], transactions=transactions)
    return msgspec.structs.replace(operator, subtasks=tuple(subtasks))


def _no_longer(name: str, what: str, expected: str) -> RestoreError:
    return RestoreError(
        f"{what} of operator {name!r}",
        expected=f"the operator to be {expected}, as in the checkpoint",
        found="another place in the job",
        action="give the operator its place back, or start with an empty store",
    )
