"""What a job goes on from that had reached the end of its input: its state before the end.

Invariant: the state is that of one moment, before anything was emitted only because the input
ended; output that the end has pre-committed is committed, as after every checkpoint.
"""

import msgspec

from tidelog.checkpoint.manifest import Checkpoint, OperatorState, SubtaskState
from tidelog.state.key_groups import successor


def before_end(checkpoint: Checkpoint) -> Checkpoint:
    """The state before the end that a final checkpoint has, with the output of the end."""
    operators = {operator.id: operator for operator in checkpoint.before_end}
    for ended in checkpoint.operators:
        if any(state.transactions for state in ended.subtasks):
            operator = operators.get(ended.id) or _without_state(ended)
            operators[ended.id] = with_transactions(operator, ended)
    return msgspec.structs.replace(
        checkpoint, operators=tuple(operators.values()), before_end=(), final=False
    )


def with_transactions(operator: OperatorState, other: OperatorState) -> OperatorState:
    """The operator with the transactions of another one, divided among its subtasks."""
    subtasks = list(operator.subtasks)
    for state in other.subtasks:
        index = successor(state.index, len(subtasks))
        transactions = (*subtasks[index].transactions, *state.transactions)
        subtasks[index] = msgspec.structs.replace(subtasks[index], transactions=transactions)
    return msgspec.structs.replace(operator, subtasks=tuple(subtasks))


def _without_state(operator: OperatorState) -> OperatorState:
    """An operator that the job did not have before the end."""
    subtasks: list[SubtaskState] = []
    for state in operator.subtasks:
        first, last, start = state.first_key_group, state.last_key_group, state.seqno
        subtasks.append(SubtaskState(state.index, first, last, start, state.table, start=start))
    return msgspec.structs.replace(operator, states=(), chain=None, subtasks=tuple(subtasks))
