"""Which bytes hold which changes: pure decisions about the logs of checkpoints.

Invariants: the stretches of a subtask's changes [start, end) have each of them once, in order; what
no log has is named, never passed over.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tidelog.changelog.block import open_block
from tidelog.changelog.segment import LogRange
from tidelog.checkpoint.manifest import Checkpoint, OperatorState, StateInfo, SubtaskState
from tidelog.errors import CorruptObjectError
from tidelog.ids import SeqNo
from tidelog.storage import object_names


@dataclass(frozen=True, slots=True)
class Stretch:
    """Changes [start, end) of one subtask, out of one log range or one inline block."""

    operator: str
    subtask: int
    states: tuple[StateInfo, ...]
    start: SeqNo
    end: SeqNo
    object: str
    log: LogRange | bytes
    slot: int
    """The slot that rows give as their own."""


@dataclass(frozen=True, slots=True)
class Source:
    """One subtask as one checkpoint has it."""

    checkpoint: Checkpoint
    operator: OperatorState
    state: SubtaskState

    @property
    def upto(self) -> SeqNo:
        """Changes below are materialized or inherited; the log begins here, or before."""
        return self.state.upto

    @property
    def begin(self) -> SeqNo:
        """Where its log begins: there, or before it, back to the checkpoint that came before."""
        state = self.state
        if state.log:
            return min(self.upto, state.log[0].first)
        if state.inline:
            return min(self.upto, open_block(state.inline[0], 0, "inline log").first)
        return self.upto


@dataclass(frozen=True, slots=True)
class Cover:
    """Which source has changes [start, end); None for those that no log has any more."""

    source: Source | None
    start: SeqNo
    end: SeqNo


def cover(sources: Sequence[Source], start: SeqNo, end: SeqNo) -> Iterator[Cover]:
    """Split the changes [start, end) of a subtask over the checkpoints that have them in their
    log, few of them and old ones first.
    """
    at = start
    while at < end:
        usable = [s for s in sources if s.begin <= at < s.state.seqno]
        if usable:
            best = max(usable, key=lambda s: (min(s.state.seqno, end), -s.checkpoint.slot))
            upto = min(best.state.seqno, end)
            yield Cover(best, at, upto)
        else:
            later = [s.begin for s in sources if at < s.begin < s.state.seqno]
            upto = min([*later, end])
            yield Cover(None, at, upto)
        at = upto


def stretches(source: Source, start: SeqNo, end: SeqNo, slot: int) -> Iterator[Stretch]:
    """Where the changes [start, end), which the source's log must have, lie.

    Raises CorruptObjectError when its ranges and inline blocks do not have all of them.
    """
    name = object_names.checkpoint(source.checkpoint.slot)
    operator, state = source.operator, source.state
    what = f"object {name}: log of {operator.id}-{state.index}"
    at = start
    for first, last, log in _pieces(state, what):
        if last <= at:
            continue
        if first > at or at >= end:
            break
        upto = min(last, end)
        held = log.segment if isinstance(log, LogRange) else name
        yield Stretch(operator.id, state.index, operator.states, at, upto, held, log, slot)
        at = upto
    if at < end:
        raise CorruptObjectError(
            what,
            expected=f"changes {start} to {end - 1}",
            found=f"none from {at} on",
            action="run `tidelog inspect URL`; read an older slot",
        )


def _pieces(state: SubtaskState, what: str) -> list[tuple[SeqNo, SeqNo, LogRange | bytes]]:
    pieces: list[tuple[SeqNo, SeqNo, LogRange | bytes]] = [(r.first, r.end, r) for r in state.log]
    for data in state.inline:
        block = open_block(data, 0, what)
        pieces.append((block.first, block.end, data))
    return sorted(pieces, key=lambda piece: piece[:2])
