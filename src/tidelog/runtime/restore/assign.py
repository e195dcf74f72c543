"""The third pass of a restore, who gets what: stored state goes to the tasks of the job. Pure.

With another parallelism an operator may be chained to its input, or not any more. Invariants: a
subtask gets the state of the same operator and of the key groups it owns; an operator that is
chained now has no state, for only the first of a chain has any; what a sink has pre-committed
stays with that sink, in any task.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from tidelog.checkpoint.finished import fully_finished, partially_finished, reopened
from tidelog.checkpoint.manifest import OperatorState, SubtaskState
from tidelog.errors import RestoreError
from tidelog.ids import SeqNo, SubtaskId
from tidelog.runtime.config import JobConfig
from tidelog.runtime.restore.choose import Operators
from tidelog.runtime.restore.redistribute import redistribute, redistribute_operator_state
from tidelog.runtime.subtasks.vertices import Vertex
from tidelog.state.key_groups import range_of, successor

_NOTHING = SeqNo(0)


def rechain(
    stored_operators: Mapping[str, OperatorState], vertices: Iterable[Vertex]
) -> dict[str, OperatorState]:
    """The stored operators by the vertices that go on with them.

    Each stored operator is a node of the job, or holds nothing but output of a sink that is one.

    Raises RestoreError when state or transactions have nowhere to go.
    """
    vertices = list(vertices)
    home = {node.id: vertex for vertex in vertices for node in vertex.nodes}
    rechained = {v.id: stored_operators[v.id] for v in vertices if v.id in stored_operators}
    outputs: list[tuple[Vertex, OperatorState]] = []
    for name, operator in stored_operators.items():
        if name not in rechained and operator.states:
            raise _no_longer(name, "state", "the first of a chain of operators")
        owners = {piece.operator for state in operator.subtasks for piece in state.operator_state}
        if owners - {node.id for node in (home[name].nodes if name in rechained else ())}:
            raise _no_longer(name, "operator state", f"chained to {', '.join(sorted(owners))}")
        if any(state.transactions for state in operator.subtasks):
            sink = sink_of(operator, vertices)
            if sink is None:
                raise _no_longer(name, "sink transactions", "one that ends in a sink")
            if sink.id != name:
                outputs.append((sink, operator))
                if name in rechained:
                    rechained[name] = operator.with_all(transactions=())
    # Only now: what another sink is given is not what its own tasks had.
    for sink, operator in outputs:
        target = rechained.get(sink.id) or empty(sink, operator.key_groups)
        rechained[sink.id] = with_transactions(target, operator)
    return rechained


def sink_of(operator: OperatorState, vertices: Sequence[Vertex]) -> Vertex | None:
    """The vertex whose sink goes on with what the operator's tasks had pre-committed.

    That is the sink of the same name, wherever it stands; a renamed one is found by its place.
    """
    for vertex in vertices:
        if vertex.nodes[-1].sink is not None and vertex.nodes[-1].id == operator.sink:
            return vertex
    home = next((v for v in vertices if operator.id in {node.id for node in v.nodes}), None)
    return None if home is None else sink_behind(home, vertices)


def sink_behind(vertex: Vertex, vertices: Iterable[Vertex]) -> Vertex | None:
    """The vertex with the sink that a chain which begins with `vertex` could have ended in.

    A plain edge of the chain may have become an exchange; operators with keyed state or several
    inputs never were part of one.
    """
    while vertex.nodes[-1].sink is None:
        followers = [v for v in vertices if any(upstream is vertex for upstream, _ in v.inputs)]
        if len(followers) != 1 or len(followers[0].inputs) != 1 or followers[0].head.keyed:
            return None
        vertex = followers[0]
    return vertex


def empty(vertex: Vertex, key_groups: int, start: SeqNo = _NOTHING) -> OperatorState:
    """An operator without state, its next change numbered `start`."""
    owned = [range_of(i, key_groups, vertex.parallelism) for i in range(vertex.parallelism)]
    subtasks = tuple(
        SubtaskState(index, groups.first, groups.last, start, "memory", start=start)
        for index, groups in enumerate(owned)
    )
    return OperatorState(vertex.id, key_groups, (), subtasks)


def with_transactions(operator: OperatorState, other: OperatorState) -> OperatorState:
    """The operator with the transactions of another one, divided among its subtasks."""
    subtasks = list(operator.subtasks)
    for state in other.subtasks:
        index = successor(state.index, len(subtasks))
        transactions = (*subtasks[index].transactions, *state.transactions)
        subtasks[index] = msgspec.structs.replace(subtasks[index], transactions=transactions)
    return msgspec.structs.replace(operator, subtasks=tuple(subtasks))


def _no_longer(name: str, what: str, expected: str) -> RestoreError:
    return RestoreError(
        f"{what} of operator {name!r}",
        expected=f"the operator to be {expected}, as in the checkpoint",
        found="another place in the job",
        action="give the operator its place back, or start with an empty store",
    )


def reshaped(
    vertex: Vertex, operator: OperatorState, config: JobConfig, *, anew: bool
) -> OperatorState:
    """The operator with the subtasks that it has in the job; `anew`: its state is migrated."""
    table = config.table_of(keyed=vertex.head.keyed)
    # Migrated state is another than the log's, which must not be taken for its continuation.
    reshaped = redistribute(operator, vertex.parallelism, table, anew=anew)
    if reshaped is not operator and partially_finished(operator) and vertex.head.source is None:
        reshaped = reopened(reshaped)
    return redistribute_operator_state(operator, reshaped)


def finished_subtasks(
    vertices: Iterable[Vertex], operators: Operators, *, shared: bool
) -> dict[SubtaskId, SubtaskState]:
    """The subtasks of restored operators that are not to run again.

    Where checkpoints to come cannot refer to what was restored, it not being `shared`, subtasks of
    a source run again whose positions they must hold: these say that there is nothing to read.
    """
    finished = {}
    for vertex in vertices:
        operator = operators.get(vertex.id)
        if operator is None or (not shared and vertex.head.source and not fully_finished(operator)):
            continue
        for subtask in operator.subtasks:
            if subtask.finished:
                finished[SubtaskId(vertex.id, subtask.index)] = subtask
    return finished
