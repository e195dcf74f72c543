"""The first pass of a restore: what is dropped, because no operator of the job can take it. Pure.

Invariant: what holds nothing is dropped silently; state, split positions and sink transactions only
when the user names the operator, and then the plan describes them.
"""

from collections.abc import Collection, Mapping, Sequence, Set
from typing import Final, NamedTuple

import msgspec

from tidelog.checkpoint.manifest import InheritedState, OperatorState, StateInfo, SubtaskState
from tidelog.errors import RestoreError
from tidelog.ids import SeqNo
from tidelog.runtime.config import JobConfig
from tidelog.runtime.restore.choose import RestorePlan
from tidelog.runtime.subtasks.vertices import Vertex, sink_types, source_types

_NO_SUCH: Final = "no such operator; a renamed one starts with nothing"
_TRANSACTIONS: Final = "sink transactions"
_UNNAMED: Final = {
    "splits": "the positions of its splits",
    "timers": "its timers",
    "emitted": "how far its final values were emitted",
    "ids": "the types of its ids",
}
"""What states are, by kind, whose names no user has given."""


def drop(plan: RestorePlan, config: JobConfig) -> RestorePlan:
    """The plan without state that no operator can take; raises RestoreError if not allowed."""
    allowed = frozenset(config.allow_non_restored_state)
    vertices_by_node: dict[str, Vertex] = {}
    for vertex in plan.vertices:
        for node in vertex.nodes:
            vertices_by_node[node.id] = vertex
    operators: dict[str, OperatorState] = {}
    dropped: list[str] = []
    for operator in plan.operators.values():
        if operator.id in vertices_by_node:
            remainder, losses = _changed(operator, plan, vertices_by_node, allowed)
        else:
            remainder, losses = _removed(operator, plan, allowed)
        for loss in losses:
            if not loss.names & allowed:
                raise loss.refusal()
            dropped.append(f"{', '.join(loss.items)} of {loss.owner}")
        if remainder is not None:
            operators[operator.id] = remainder
    return msgspec.structs.replace(plan, operators=operators, dropped=tuple(dropped))


class _Loss(NamedTuple):
    """Stored state that no operator of the job can take."""

    owner: str
    """Operator, sink or source, as messages name it."""
    items: Sequence[str]
    """What it has, described."""
    names: Set[str]
    """The user has to name one of these operators to allow the loss."""
    replacement: str
    """What the job has instead."""

    def refusal(self) -> RestoreError:
        commit = ""
        if self.items[-1].endswith(_TRANSACTIONS):
            commit = (
                "start the job once as it was and stop it with a savepoint, which commits what was "
                "pre-committed; then "
            )
        return RestoreError(
            self.owner,
            expected=f"it in the job, as the checkpoint holds {', '.join(self.items)} of it",
            found=self.replacement,
            action=f"give it its name, its place and its class back; or {commit}drop what is held, "
            f"for good, with --allow-non-restored-state {min(self.names - {''})} "
            "(JobConfig.allow_non_restored_state); or start with an empty store",
        )


_Parts = tuple[OperatorState | None, list[_Loss]]
"""What goes on of a stored operator, and what does not."""


def _removed(operator: OperatorState, plan: RestorePlan, allowed: Set[str]) -> _Parts:
    """Of an operator that the job does not have at most the output goes on, with its sink."""
    output = None
    if has_output(operator) and _sink_replacement(operator, plan, allowed) is None:
        output = _only_output(operator)
        operator = operator.with_all(transactions=())
    items, names = _items(operator), {operator.id}
    if items == _output(operator):
        names.add(operator.sink)
    loss = _Loss(f"operator {operator.id!r}", items, names, _NO_SUCH)
    return output, [loss] if items else []


def _changed(
    operator: OperatorState,
    plan: RestorePlan,
    vertices_by_node: Mapping[str, Vertex],
    allowed: Set[str],
) -> _Parts:
    """An operator that the job has goes on without state of others that were chained to it and are
    gone, and without what another sink or source cannot read.
    """
    name, sink, losses = operator.id, operator.sink, []
    for owner, pieces in _pieces(operator).items():
        if owner not in vertices_by_node:
            losses.append(_Loss(f"operator {owner!r}", [pieces], {owner}, _NO_SUCH))
    operator = _without_pieces(operator, vertices_by_node)
    if replacement := _sink_replacement(operator, plan, allowed):
        output = _output(operator)
        losses.append(_Loss(f"sink {sink or name!r}", output, {name, sink}, replacement))
        operator = operator.with_all(transactions=())
    replacement = _other_class(operator.source_types, source_types(vertices_by_node[name]))
    if replacement and any(info.kind == "splits" for info in operator.states):
        losses.append(_Loss(f"source {name!r}", [_UNNAMED["splits"]], {name}, replacement))
        operator = _only_output(operator)
    return operator, losses


def _items(operator: OperatorState) -> list[str]:
    """All that an operator has, described."""
    items: list[str] = []
    for subtask in operator.subtasks:
        if any(map(has_rows, subtask.layers)):
            items += map(_state, operator.states)
    return list(dict.fromkeys([*items, *_pieces(operator).values(), *_output(operator)]))


def has_rows(layer: InheritedState) -> bool:
    """Whether there is anything for a restore to load."""
    return layer.materialization is not None or layer.seqno > layer.upto


def _state(info: StateInfo) -> str:
    return _UNNAMED.get(info.kind) or f"state {info.name!r}"


def _pieces(operator: OperatorState) -> dict[str, str]:
    """The operators of the chain that have operator state with something in it, and which."""
    names: dict[str, set[str]] = {}
    for subtask in operator.subtasks:
        for piece in subtask.operator_state:
            if piece.entries:
                names.setdefault(piece.operator, set()).add(repr(piece.name))
    described = {}
    for owner in sorted(names):
        described[owner] = f"operator state {', '.join(sorted(names[owner]))}"
    return described


def has_output(operator: OperatorState) -> bool:
    """Whether its sink has pre-committed something."""
    return bool(_output(operator))


def _output(operator: OperatorState) -> list[str]:
    """What its sink has pre-committed, described."""
    count = 0
    for subtask in operator.subtasks:
        count += len(subtask.transactions)
    return [f"{count} {_TRANSACTIONS}"] if count else []


def _sink_replacement(operator: OperatorState, plan: RestorePlan, allowed: Set[str]) -> str | None:
    """What the job has instead of the sink that could commit the output; None: it has the sink.

    `allowed` names sinks whose output may be lost: one that is gone is not taken for a renamed one.
    """
    if not has_output(operator):
        return None
    vertex = sink_of(operator, plan.vertices)
    if vertex is None:
        return "no sink at the end of its tasks"
    if operator.sink in allowed and vertex.nodes[-1].id != operator.sink:
        return _NO_SUCH
    return _other_class(operator.sink_types, sink_types(vertex))


def sink_of(operator: OperatorState, vertices: Sequence[Vertex]) -> Vertex | None:
    """The vertex whose sink commits what the operator's tasks had pre-committed.

    That is the sink of the same name, wherever it stands; a renamed one is found by its place: at
    the end of the chain that the operator began, of which a plain edge may have become an exchange.
    """
    home = None
    for vertex in vertices:
        if vertex.nodes[-1].sink is not None and vertex.nodes[-1].id == operator.sink:
            return vertex
        if any(node.id == operator.id for node in vertex.nodes):
            home = vertex
    while home is not None and home.nodes[-1].sink is None:
        consumers = [vertex for vertex in vertices if home in dict(vertex.inputs)]
        # Operators with keyed state or several inputs never were chained to another.
        single = len(consumers) == 1 and len(consumers[0].inputs) == 1
        home = consumers[0] if single and not consumers[0].head.keyed else None
    return home


def _other_class(stored_types: tuple[str, ...], job_types: tuple[str, ...]) -> str | None:
    # A class in common is enough: a base can read what a subclass has written.
    if not stored_types or {*stored_types} & {*job_types}:
        return None
    job_type = job_types[0] if job_types else "none"
    return f"{job_type}, which is no {stored_types[0]} and has no base with it"


def _without_pieces(operator: OperatorState, nodes: Collection[str]) -> OperatorState:
    """The operator without operator state of others than `nodes`."""
    subtasks = []
    for subtask in operator.subtasks:
        pieces = tuple(piece for piece in subtask.operator_state if piece.operator in nodes)
        subtasks.append(msgspec.structs.replace(subtask, operator_state=pieces))
    return msgspec.structs.replace(operator, subtasks=tuple(subtasks))


def _only_output(operator: OperatorState) -> OperatorState:
    """The operator with nothing but what its sink has pre-committed."""
    start, subtasks = after_all_changes(operator), []
    for old in operator.subtasks:
        groups, output = (old.first_key_group, old.last_key_group), old.transactions
        subtasks.append(
            SubtaskState(old.index, *groups, start, "memory", start=start, transactions=output)
        )
    return OperatorState(operator.id, operator.key_groups, (), tuple(subtasks), sink=operator.sink)


def after_all_changes(operator: OperatorState) -> SeqNo:
    """The number of the first new change, after a gap, so that no stored log is continued."""
    return SeqNo(max(subtask.seqno for subtask in operator.subtasks) + 1)
