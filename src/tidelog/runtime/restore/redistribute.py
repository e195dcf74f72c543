"""Another shape for an operator: its state dealt out to more, fewer or other subtasks.

Invariants:
- pure functions: nothing is read, and the operator they are given stays as it is;
- every key group of the old subtasks goes to exactly the one new subtask that owns it, and every
  sink transaction to exactly one;
- new changes are numbered above all old ones, with a gap, so that no log is ever taken for the
  continuation of another shape's, and whatever is ordered by these numbers stays in order;
- an element of a list state goes to exactly one subtask; a union goes whole to all; a broadcast
  state is that of one subtask, a running one if there is any, and goes to all.
"""

from collections.abc import Iterable, Sequence
from itertools import chain

import msgspec

from tidelog.checkpoint.manifest import (
    AheadOfWatermark,
    InheritedState,
    OperatorPiece,
    OperatorState,
    SubtaskState,
)
from tidelog.ids import KeyGroup, SeqNo
from tidelog.state.event_time import UNKNOWN, EventTime
from tidelog.state.key_groups import KeyGroupRange, range_of, successor

_KEPT_KINDS = frozenset({"splits"})
"""States that count when their subtask finished: a split read to its end is not read again."""


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
    start = SeqNo(max(state.seqno for state in operator.subtasks) + 1)
    keep_finished = any(info.kind in _KEPT_KINDS for info in operator.states)
    subtasks = [
        _heir(operator, index, parallelism, table, start, keep_finished=keep_finished)
        for index in range(parallelism)
    ]
    return msgspec.structs.replace(operator, subtasks=tuple(subtasks))


def _heir(
    operator: OperatorState,
    index: int,
    parallelism: int,
    table: str | None,
    start: SeqNo,
    *,
    keep_finished: bool,
) -> SubtaskState:
    owned = range_of(index, operator.key_groups, parallelism)
    parents = [state for state in operator.subtasks if _clip(state, owned) is not None]
    finished = all(parent.finished for parent in parents)
    running = parents if finished else [parent for parent in parents if not parent.finished]
    givers = parents if keep_finished else running
    watermark = _watermark(running)
    # What is in flight is left out: it is routed anew, and upstream announces its watermark again.
    # A watermark on its way through the timers goes on as what its key groups are ahead.
    return SubtaskState(
        index=index,
        first_key_group=owned.first,
        last_key_group=owned.last,
        seqno=start,
        table=table or parents[0].table,
        watermark=watermark,
        transactions=tuple(
            transaction
            for state in operator.subtasks
            if successor(state.index, parallelism) == index
            for transaction in state.transactions
        ),
        finished=finished,
        ahead=_ahead(running, owned, watermark),
        start=start,
        inherited=tuple(_inherited(givers, owned)),
    )


def _watermark(parents: Iterable[SubtaskState]) -> int | None:
    """The earliest of all; unknown when one is."""
    marks = [parent.watermark for parent in parents]
    reported = [mark for mark in marks if mark is not None]
    return min(reported) if len(reported) == len(marks) else None


def _ahead(
    parents: Iterable[SubtaskState], owned: KeyGroupRange, watermark: int | None
) -> tuple[AheadOfWatermark, ...]:
    """The owned key groups whose parents were further than `watermark`, each with how far."""
    reached: dict[int, int] = {}
    for parent in parents:
        clipped = _clip(parent, owned)
        fired = [mark for mark in (parent.watermark, parent.advancing) if mark is not None]
        if clipped is not None and fired:
            reached |= dict.fromkeys(range(clipped.first, clipped.last + 1), max(fired))
        for part in parent.ahead:
            for group in range(part.first_key_group, part.last_key_group + 1):
                if group in owned:
                    reached[group] = max(part.watermark, reached.get(group, part.watermark))
    event_time = EventTime(UNKNOWN, reached)
    if watermark is not None:
        event_time.advance(watermark)
    return event_time.stored()


def _inherited(parents: Iterable[SubtaskState], owned: KeyGroupRange) -> Iterable[InheritedState]:
    for layer in chain.from_iterable(parent.layers for parent in parents):
        clipped = _clip(layer, owned)
        if clipped is not None and holds_something(layer):
            first, last = clipped.first, clipped.last
            yield msgspec.structs.replace(layer, first_key_group=first, last_key_group=last)


def _clip(layer: SubtaskState | InheritedState, owned: KeyGroupRange) -> KeyGroupRange | None:
    first = max(layer.first_key_group, owned.first)
    last = min(layer.last_key_group, owned.last)
    return KeyGroupRange(KeyGroup(first), KeyGroup(last)) if first <= last else None


def holds_something(layer: InheritedState) -> bool:
    """Whether a restore would find any rows there."""
    return layer.materialization is not None or layer.seqno > layer.upto


def redistribute_operator_state(old: OperatorState, new: OperatorState) -> OperatorState:
    """`new`, the new shape of `old`, with its part of the operator state in every subtask."""
    if not any(subtask.operator_state for subtask in old.subtasks):
        return new
    count = len(new.subtasks)
    shares = _shares(old.subtasks, count)
    subtasks = [
        msgspec.structs.replace(subtask, operator_state=tuple(share))
        for subtask, share in zip(new.subtasks, shares, strict=True)
    ]
    return msgspec.structs.replace(new, subtasks=tuple(subtasks))


def _shares(subtasks: Sequence[SubtaskState], count: int) -> list[list[OperatorPiece]]:
    shares: list[list[OperatorPiece]] = [[] for _ in range(count)]
    running_first = sorted(subtasks, key=lambda subtask: subtask.finished)
    first_pieces = {
        (piece.operator, piece.name): piece
        for subtask in reversed(running_first)
        for piece in subtask.operator_state
    }
    for (operator, name), first in first_pieces.items():
        of_subtasks = [_entries(subtask, operator, name) for subtask in subtasks]
        all_entries = tuple(entry for entries in of_subtasks for entry in entries)
        for index, share in enumerate(shares):
            entries = first.entries
            if first.kind == "union":
                entries = all_entries
            elif first.kind == "list":
                entries = (
                    of_subtasks[index] if len(subtasks) == count else all_entries[index::count]
                )
            share.append(OperatorPiece(operator, name, first.kind, entries))
    return shares


def _entries(subtask: SubtaskState, operator: str, name: str) -> tuple[bytes, ...]:
    pieces = subtask.operator_state
    return next((p.entries for p in pieces if (p.operator, p.name) == (operator, name)), ())
