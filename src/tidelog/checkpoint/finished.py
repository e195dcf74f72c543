"""What checkpoints hold of subtasks that have finished: pure functions over their states.

Invariants: the checkpoint that contains a subtask's finish holds its whole state, later ones hold
a mark; only a source's finished subtask keeps its positions, for as long as others of the source
run: without them a rescaled restart would read its splits again.
"""

from collections.abc import Iterable

import msgspec

from tidelog.checkpoint.manifest import Checkpoint, OperatorState, SubtaskState


def exited_state(state: SubtaskState, *, positions: bool) -> SubtaskState:
    """The state that a checkpoint holds of a subtask that exited after an earlier checkpoint.

    Its transactions were committed before it exited, and downstream tasks store its records in
    flight. With `positions` its state stays, without the log that its table covers: no task is
    left to truncate it.
    """
    if positions:
        # A range that ends exactly there may hold the metadata with which the rest begins.
        log = tuple(part for part in state.log if part.end >= state.upto)
        return msgspec.structs.replace(
            state, log=log, transactions=(), in_flight=None, barrier=None
        )
    return SubtaskState(
        index=state.index,
        first_key_group=state.first_key_group,
        last_key_group=state.last_key_group,
        seqno=state.seqno,
        table=state.table,
        watermark=state.watermark,
        finished=True,
        # No change of it is needed any more, and change numbers never go back.
        start=state.seqno,
        updates=state.updates,
    )


def fully_finished(operator: OperatorState) -> bool:
    """Every subtask finished: the operator is skipped after a restore."""
    return all(subtask.finished for subtask in operator.subtasks)


def finished_operators(stored_operators: Iterable[OperatorState]) -> set[str]:
    """All operators that have finished, whichever tasks they ran in then."""
    names: set[str] = set()
    for operator in stored_operators:
        if fully_finished(operator):
            names |= {operator.id, *(operator.chain or ())}
    return names


def partially_finished(operator: OperatorState) -> bool:
    """Some subtasks finished, others did not."""
    return not fully_finished(operator) and any(s.finished for s in operator.subtasks)


def reopened(operator: OperatorState) -> OperatorState:
    """Every subtask runs again, those that had finished without state.

    For an operator in another shape than it had when a part of it finished: records in flight may
    go to any of its new subtasks.
    """
    replace = msgspec.structs.replace
    subtasks = list(operator.subtasks)
    for index, subtask in enumerate(subtasks):
        if subtask.finished:
            anew = replace(subtask, finished=False, inherited=(), watermark=None, ahead=())
            subtasks[index] = anew
    return replace(operator, subtasks=tuple(subtasks))


def without_transactions(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint for a job with an output of its own, without what was pre-committed."""
    operators = tuple(operator.with_all(transactions=()) for operator in checkpoint.operators)
    return msgspec.structs.replace(checkpoint, operators=operators)
