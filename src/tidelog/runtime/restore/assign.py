"""The third pass of a restore, who gets what: stored state goes to the subtasks of the job. Pure.

With another parallelism an operator has other subtasks, and may be chained to its input, or not any
more. Invariants:
- a subtask gets the state of the same operator; every key group of the old subtasks goes to exactly
  the one new subtask that owns it, and every sink transaction to exactly one of the same sink;
- an operator that is chained now has no state, for only the first of a chain has any;
- new changes are numbered above all old ones, with a gap, so that no log is ever taken for the
  continuation of another shape's, and whatever is ordered by these numbers stays in order;
- an element of a list state goes to exactly one subtask; a union goes whole to all; a broadcast
  state is that of one subtask, a running one if there is any, and goes to all.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from tidelog.checkpoint.finished import (
    finished_operators,
    fully_finished,
    partially_finished,
    reopened,
)
from tidelog.checkpoint.manifest import (
    AheadOfWatermark,
    InheritedState,
    OperatorPiece,
    OperatorState,
    SubtaskState,
)
from tidelog.errors import RestoreError
from tidelog.ids import KeyGroup, SeqNo, SubtaskId
from tidelog.runtime.config import JobConfig
from tidelog.runtime.restore.after_end import with_transactions
from tidelog.runtime.restore.choose import RestorePlan
from tidelog.runtime.restore.drop import after_all_changes, has_output, has_rows, sink_of
from tidelog.runtime.subtasks.vertices import Vertex
from tidelog.state.event_time import UNKNOWN, EventTime
from tidelog.state.key_groups import KeyGroupRange, range_of, successor


def assign(plan: RestorePlan, config: JobConfig) -> RestorePlan:
    """The plan with what each subtask of the job loads, and those that do not run again.

    Raises RestoreError when state or transactions have nowhere to go.
    """
    finished_ids = finished_operators(plan.operators.values())
    rechained = rechain(plan.operators, plan.vertices)
    operators: dict[str, OperatorState] = {}
    for vertex in plan.vertices:
        operator = rechained.get(vertex.id)
        if vertex.id in finished_ids and vertex.id not in plan.operators:
            # It had finished in the chain of another one, and has tasks of its own now.
            operator = (operator or _empty(vertex, config.key_groups)).with_all(finished=True)
        if operator is not None:
            # What is migrated does not continue the log: it must not be taken for that.
            anew = vertex.id in plan.migrated
            operators[vertex.id] = _reshaped(vertex, operator, config, anew=anew)
    plan = msgspec.structs.replace(plan, operators=operators)
    return msgspec.structs.replace(plan, finished=_finished_subtasks(plan))


def rechain(
    stored_operators: Mapping[str, OperatorState], vertices: Sequence[Vertex]
) -> dict[str, OperatorState]:
    """The stored operators by the vertices that go on with them.

    Each stored operator is a node of the job, or has nothing but output of a sink that is one.
    """
    vertices_by_id = {vertex.id: vertex for vertex in vertices}
    rechained: dict[str, OperatorState] = {}
    outputs: list[tuple[Vertex, OperatorState]] = []
    for name, operator in stored_operators.items():
        vertex = vertices_by_id.get(name)
        _check_chain(operator, vertex)
        if has_output(operator):
            sink = sink_of(operator, vertices)
            if sink is None:
                raise _no_longer(name, "sink transactions", "one that ends in a sink")
            if sink is not vertex:
                outputs.append((sink, operator))
                operator = operator.with_all(transactions=())  # noqa: PLW2901
        if vertex is not None:
            rechained[name] = operator
    # Only now: what another sink is given is not what its own tasks had.
    for sink, operator in outputs:
        target = rechained.get(sink.id) or _empty(sink, operator.key_groups)
        rechained[sink.id] = with_transactions(target, operator)
    return rechained


def _check_chain(operator: OperatorState, vertex: Vertex | None) -> None:
    """Raises RestoreError for state of an operator that is not in the chain that had it."""
    if vertex is None and operator.states:
        raise _no_longer(operator.id, "state", "the first of a chain of operators")
    nodes = {node.id for node in vertex.nodes} if vertex is not None else set()
    owners: set[str] = set()
    for subtask in operator.subtasks:
        for piece in subtask.operator_state:
            owners.add(piece.operator)
    if owners - nodes:
        expected = f"chained to {', '.join(sorted(owners))}"
        raise _no_longer(operator.id, "operator state", expected)


def _no_longer(name: str, what: str, expected: str) -> RestoreError:
    return RestoreError(
        f"{what} of operator {name!r}",
        expected=f"the operator to be {expected}, as in the checkpoint",
        found="another place in the job",
        action="give the operator its place back, or start with an empty store",
    )


def _empty(vertex: Vertex, key_groups: int) -> OperatorState:
    """An operator without state."""
    subtasks = []
    for index in range(vertex.parallelism):
        owned = range_of(index, key_groups, vertex.parallelism)
        subtasks.append(SubtaskState(index, owned.first, owned.last, SeqNo(0), "memory"))
    return OperatorState(vertex.id, key_groups, (), tuple(subtasks))


def _reshaped(
    vertex: Vertex, operator: OperatorState, config: JobConfig, *, anew: bool
) -> OperatorState:
    """The operator with the subtasks that it has in the job."""
    table = config.table_of(keyed=vertex.head.keyed)
    reshaped = redistribute(operator, vertex.parallelism, table, anew=anew)
    if reshaped is not operator and partially_finished(operator) and vertex.head.source is None:
        reshaped = reopened(reshaped)
    return redistribute_operator_state(operator, reshaped)


def _finished_subtasks(plan: RestorePlan) -> dict[SubtaskId, SubtaskState]:
    """The subtasks of restored operators that are not to run again.

    Where checkpoints to come cannot refer to what was restored, subtasks of a source run again
    whose positions they must hold: these say that there is nothing to read.
    """
    finished = {}
    for vertex in plan.vertices:
        operator = plan.operators.get(vertex.id)
        if operator is None:
            continue
        if plan.resumption.detached and vertex.head.source and not fully_finished(operator):
            continue
        for subtask in operator.subtasks:
            if subtask.finished:
                finished[SubtaskId(vertex.id, subtask.index)] = subtask
    return finished


def redistribute(
    operator: OperatorState, parallelism: int, table: str | None = None, *, anew: bool = False
) -> OperatorState:
    """The operator as `parallelism` subtasks with tables of kind `table` (None: as it was) load it.

    The same object when nothing changes, unless `anew`. Otherwise its subtasks own no log: what
    they load is in `inherited`. A new subtask is finished when all that it follows were; else it
    takes nothing over from those that were, because what they held has been emitted.
    """
    kinds = {state.table for state in operator.subtasks}
    if not anew and len(operator.subtasks) == parallelism and kinds <= {table or next(iter(kinds))}:
        return operator
    start = after_all_changes(operator)
    subtasks = [_heir(operator, index, parallelism, table, start) for index in range(parallelism)]
    return msgspec.structs.replace(operator, subtasks=tuple(subtasks))


def _heir(
    operator: OperatorState, index: int, parallelism: int, table: str | None, start: SeqNo
) -> SubtaskState:
    owned = range_of(index, operator.key_groups, parallelism)
    parents: list[SubtaskState] = []
    running: list[SubtaskState] = []
    transactions: list[bytes] = []
    for state in operator.subtasks:
        if _clip(state, owned) is not None:
            parents.append(state)
            if not state.finished:
                running.append(state)
        if successor(state.index, parallelism) == index:
            transactions += state.transactions
    # A split that was read to its end when its subtask finished is not read again.
    has_splits = any(info.kind == "splits" for info in operator.states)
    # The earliest of all; unknown when one is.
    earliest = min(_event_time(parent.watermark) for parent in running or parents)
    watermark = None if earliest == UNKNOWN else earliest
    # What is in flight is left out: it is routed anew, and upstream announces its watermark again.
    # A watermark on its way through the timers goes on as what its key groups are ahead.
    return SubtaskState(
        index=index,
        first_key_group=owned.first,
        last_key_group=owned.last,
        seqno=start,
        table=table or parents[0].table,
        watermark=watermark,
        transactions=tuple(transactions),
        finished=not running,
        ahead=_ahead(running or parents, owned, watermark),
        start=start,
        inherited=tuple(_inherited(parents if has_splits else running or parents, owned)),
    )


def _event_time(watermark: int | None) -> int:
    return UNKNOWN if watermark is None else watermark


def _ahead(
    parents: Iterable[SubtaskState], owned: KeyGroupRange, watermark: int | None
) -> tuple[AheadOfWatermark, ...]:
    """The owned key groups whose parents were further than `watermark`, each with how far."""
    reached: dict[int, int] = {}
    for parent in parents:
        fired = max(_event_time(parent.watermark), _event_time(parent.advancing))
        reached |= dict.fromkeys(_clip(parent, owned) or (), fired)
        for part in parent.ahead:
            for group in _clip(part, owned) or ():
                reached[group] = max(part.watermark, reached.get(group, part.watermark))
    event_time = EventTime(UNKNOWN, reached)
    event_time.advance(_event_time(watermark))
    return event_time.stored()


def _inherited(parents: Iterable[SubtaskState], owned: KeyGroupRange) -> Iterable[InheritedState]:
    for parent in parents:
        for layer in parent.layers:
            clipped = _clip(layer, owned)
            if clipped is not None and has_rows(layer):
                first, last = clipped.first, clipped.last
                yield msgspec.structs.replace(layer, first_key_group=first, last_key_group=last)


def _clip(
    groups: SubtaskState | InheritedState | AheadOfWatermark, owned: KeyGroupRange
) -> KeyGroupRange | None:
    """The key groups that are `owned`; None: none of them."""
    first = max(groups.first_key_group, owned.first)
    last = min(groups.last_key_group, owned.last)
    return KeyGroupRange(KeyGroup(first), KeyGroup(last)) if first <= last else None


def redistribute_operator_state(old: OperatorState, new: OperatorState) -> OperatorState:
    """`new`, the new shape of `old`, with its part of the operator state in every subtask."""
    # A broadcast state is that of a running subtask, where there is one.
    pieces: dict[tuple[str, str], OperatorPiece] = {}
    for subtask in sorted(old.subtasks, key=lambda subtask: subtask.finished):
        for piece in subtask.operator_state:
            pieces.setdefault((piece.operator, piece.name), piece)
    if not pieces:
        return new
    shared = tuple(pieces.values())
    subtasks = (msgspec.structs.replace(each, operator_state=shared) for each in new.subtasks)
    return msgspec.structs.replace(new, subtasks=tuple(subtasks))
