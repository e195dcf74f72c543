"""The second pass of a restore, what is dropped: state of operators that are gone. Pure.

Invariant: operators that hold nothing are dropped silently; state, split positions and sink
transactions only when the user names the operator, and then the job reports what was dropped.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from tidelog.checkpoint.manifest import OperatorState, SubtaskState
from tidelog.errors import RestoreError
from tidelog.ids import SeqNo
from tidelog.runtime.restore.shares import empty, sink_of, with_transactions
from tidelog.runtime.subtasks.vertices import Vertex, sink_types, source_types
from tidelog.state.restore.redistribute import holds_something

_TRANSACTIONS: Final = "sink transactions"


def without_removed(
    stored_operators: Mapping[str, OperatorState],
    vertices: Sequence[Vertex],
    allowed: Iterable[str],
) -> tuple[dict[str, OperatorState], tuple[str, ...]]:
    """(the stored operators that the job has, a description of what was dropped of others).

    `allowed` names those that may lose state. Raises RestoreError for others that hold something.
    """
    home = {node.id: vertex for vertex in vertices for node in vertex.nodes}
    operators: dict[str, OperatorState] = {}
    leave = _Leave(frozenset(allowed))
    for name, operator in stored_operators.items():
        if name not in home:
            if any(_outputs(operator)) and _other_sink(operator, vertices, leave.allowed) is None:
                # Its sink is still there, and commits what it had pre-committed.
                operators[name] = _only_output(operator)
                operator = operator.with_all(transactions=())  # noqa: PLW2901
            losses = _losses(operator)
            names = {name, operator.sink} if losses == [_transactions(operator)] else {name}
            leave(f"operator {name!r}", losses, names, _GONE)
            continue
        for owner in sorted(_owners(operator) - home.keys()):
            leave(f"operator {owner!r}", [_pieces(operator, owner)], {owner}, _GONE)
            operator = _without_pieces(operator, owner)  # noqa: PLW2901
        if actual := _other_sink(operator, vertices, leave.allowed):
            names = {name, operator.sink}
            leave(f"sink {operator.sink or name!r}", [_transactions(operator)], names, actual)
            operator = operator.with_all(transactions=())  # noqa: PLW2901
        if actual := _other_source(operator, home[name]):
            leave(f"source {name!r}", ["the positions of its splits"], {name}, actual)
            operator = _begun_anew(operator, home[name])  # noqa: PLW2901
        operators[name] = operator
    return operators, tuple(leave.dropped)


_GONE: Final = "no such operator; a renamed one starts with nothing"


@dataclass(slots=True)
class _Leave:
    """Called for all that is lost: notes it, or raises RestoreError where it is not allowed."""

    allowed: frozenset[str]
    dropped: list[str] = field(default_factory=list)

    def __call__(self, what: str, losses: list[str], names: set[str], actual: str) -> None:
        if not losses:
            return
        if names & self.allowed:
            self.dropped.append(f"{', '.join(losses)} of {what}")
            return
        commit = ""
        if losses[-1].endswith(_TRANSACTIONS):
            commit = (
                "start the job once as it was and stop it with a savepoint, which commits what was "
                "pre-committed; then "
            )
        raise RestoreError(
            what,
            expected=f"it in the job, as the checkpoint holds {', '.join(losses)} of it",
            found=actual,
            action=f"give it its name, its place and its class back; or {commit}drop what is held, "
            f"for good, with --allow-non-restored-state {min(names - {''})} "
            "(JobConfig.allow_non_restored_state); or start with an empty store",
        )


_UNNAMED: Final = {
    "splits": "the positions of its splits",
    "timers": "its timers",
    "emitted": "how far its final values were emitted",
    "ids": "the types of its ids",
}
"""What states are whose names no user has given."""


def _losses(operator: OperatorState) -> list[str]:
    """What would be lost with an operator, described."""
    losses: list[str] = []
    if any(holds_something(layer) for state in operator.subtasks for layer in state.layers):
        states = operator.states
        losses += dict.fromkeys(_UNNAMED.get(s.kind) or f"state {s.name!r}" for s in states)
    losses += [_pieces(operator, owner) for owner in sorted(_owners(operator))]
    if any(_outputs(operator)):
        losses.append(_transactions(operator))
    return losses


def _owners(operator: OperatorState) -> set[str]:
    """The operators of the chain that have operator state with something in it."""
    pieces = (piece for state in operator.subtasks for piece in state.operator_state)
    return {piece.operator for piece in pieces if piece.entries}


def _pieces(operator: OperatorState, owner: str) -> str:
    names = {
        piece.name
        for state in operator.subtasks
        for piece in state.operator_state
        if piece.operator == owner
    }
    return f"operator state {', '.join(map(repr, sorted(names)))}"


def _outputs(operator: OperatorState) -> Iterator[bytes]:
    return (output for state in operator.subtasks for output in state.transactions)


def _transactions(operator: OperatorState) -> str:
    return f"{len(list(_outputs(operator)))} {_TRANSACTIONS}"


def _other_sink(
    operator: OperatorState, vertices: Sequence[Vertex], allowed: Collection[str]
) -> str | None:
    """Why the transactions do not go to the sink that stands where theirs did; None when they do.

    `allowed` names sinks that may lose theirs: one that is gone is not taken for a renamed one.
    """
    if not any(_outputs(operator)):
        return None
    vertex = sink_of(operator, vertices)
    if vertex is None:
        return "no sink at the end of its tasks"
    if operator.sink in allowed and vertex.nodes[-1].id != operator.sink:
        return _GONE
    return _other(operator.sink_types, sink_types(vertex))


def _other_source(operator: OperatorState, vertex: Vertex) -> str | None:
    """The source that the positions would go to, described; None when it can read them."""
    positions = any(info.kind == "splits" for info in operator.states)
    return _other(operator.source_types, source_types(vertex)) if positions else None


def _other(stored_types: tuple[str, ...], job_types: tuple[str, ...]) -> str | None:
    # A class in common is enough: a base can read what a subclass has written.
    if not stored_types or {*stored_types} & {*job_types}:
        return None
    job_type = job_types[0] if job_types else "none"
    return f"{job_type}, which is no {stored_types[0]} and has no base with it"


def _without_pieces(operator: OperatorState, owner: str) -> OperatorState:
    subtasks = tuple(
        msgspec.structs.replace(
            state, operator_state=tuple(p for p in state.operator_state if p.operator != owner)
        )
        for state in operator.subtasks
    )
    return msgspec.structs.replace(operator, subtasks=subtasks)


def _only_output(operator: OperatorState) -> OperatorState:
    """The operator with nothing but what its sink has pre-committed."""
    nothing = SeqNo(0)
    subtasks = tuple(
        SubtaskState(
            state.index,
            state.first_key_group,
            state.last_key_group,
            nothing,
            "memory",
            transactions=state.transactions,
        )
        for state in operator.subtasks
    )
    return OperatorState(operator.id, operator.key_groups, (), subtasks, sink=operator.sink)


def _begun_anew(operator: OperatorState, vertex: Vertex) -> OperatorState:
    """The operator without state, but for the output that its tasks had pre-committed."""
    # Numbers of changes never go back, or new ones would be taken for those that are stored.
    start = SeqNo(max(state.seqno for state in operator.subtasks) + 1)
    new_operator = empty(vertex, operator.key_groups, start)
    return with_transactions(new_operator, operator)
