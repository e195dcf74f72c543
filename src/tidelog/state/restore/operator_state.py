"""Who gets which operator state after a restart: pure.

Invariants: an element of a list goes to exactly one subtask; a union goes whole to all; a broadcast
state is that of one subtask, a running one if there is any, and goes to all.
"""

from collections.abc import Iterable, Sequence

import msgspec

from tidelog.checkpoint.finished import partially_finished
from tidelog.checkpoint.manifest import OperatorPiece, OperatorState, SubtaskState


def redistribute_operator_state(old: OperatorState, dealt: OperatorState) -> OperatorState:
    """`dealt`, the new shape of `old`, with its part of the operator state in every subtask."""
    if not any(subtask.operator_state for subtask in old.subtasks):
        return dealt
    count = len(dealt.subtasks)
    shares = _shares(old.subtasks, count)
    subtasks = [
        msgspec.structs.replace(subtask, operator_state=tuple(share))
        for subtask, share in zip(dealt.subtasks, shares, strict=True)
    ]
    return msgspec.structs.replace(dealt, subtasks=tuple(subtasks))


def union_in_part(operators: Iterable[OperatorState]) -> str | None:
    """Why a checkpoint must not be: a union of which the finished subtasks' part is missing."""
    for operator in operators:
        names = {
            f"{piece.name!r} of operator {piece.operator!r}"
            for subtask in operator.subtasks
            for piece in subtask.operator_state
            if piece.kind == "union"
        }
        if names and partially_finished(operator):
            done = [str(subtask.index) for subtask in operator.subtasks if subtask.finished]
            return (
                f"union state {', '.join(sorted(names))}: subtask {', '.join(done)} finished and "
                "others did not, so a restart would miss a part of it"
            )
    return None


def _shares(subtasks: Sequence[SubtaskState], count: int) -> list[list[OperatorPiece]]:
    shares: list[list[OperatorPiece]] = [[] for _ in range(count)]
    running_first = sorted(subtasks, key=lambda subtask: subtask.finished)
    named = {
        (piece.operator, piece.name): piece
        for subtask in reversed(running_first)
        for piece in subtask.operator_state
    }
    for (operator, name), first in named.items():
        held = [_entries(subtask, operator, name) for subtask in subtasks]
        whole = tuple(entry for entries in held for entry in entries)
        for index, share in enumerate(shares):
            entries = first.entries
            if first.kind == "union":
                entries = whole
            elif first.kind == "list":
                entries = held[index] if len(subtasks) == count else whole[index::count]
            share.append(OperatorPiece(operator, name, first.kind, entries))
    return shares


def _entries(subtask: SubtaskState, operator: str, name: str) -> tuple[bytes, ...]:
    for piece in subtask.operator_state:
        if (piece.operator, piece.name) == (operator, name):
            return piece.entries
    return ()
