"""Which older materialization leads to the same state: pure reasoning over retained checkpoints.

Invariants: two chains are joined only where both are known to tell the same history. A generation
is one process that numbers the changes of a partition once, so two chains that both reach change n
of one generation agree below n. What an abandoned generation logged beyond the slot that its
successor restored is never taken for history.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from tidelog.changelog.block import open_block
from tidelog.checkpoint.manifest import SubtaskState
from tidelog.ids import Generation, SeqNo, Slot
from tidelog.storage import object_names

NO_MATERIALIZATION = "no materialization: the log alone makes the state"
ONLY_ONE = "only one materialization"
LOG_IS_CUT = "only one materialization: the log between it and the older one is cut"
OLDER_IS_DAMAGED = "only one materialization: the way from the older one is damaged"


@dataclass(frozen=True, slots=True)
class Chain:
    """A partition as one checkpoint has it: a materialization, or none, and the log above it."""

    slot: Slot
    generation: Generation
    """Generation of the checkpoint's author."""
    state: SubtaskState

    @property
    def upto(self) -> SeqNo:
        """Changes below are materialized, or inherited."""
        return self.state.upto

    def log(self) -> list[tuple[Generation, SeqNo, SeqNo]]:
        """(writer's generation, first, end) of all log ranges and inline blocks.

        A range may reach beyond the checkpoint: what lies there was written by the same process.
        """
        ranges = [(self._writer(p.segment), p.first, p.end) for p in self.state.log]
        blocks = [open_block(data, 0, "inline log") for data in self.state.inline]
        return [*ranges, *((self.generation, block.first, block.end) for block in blocks)]

    def reached(self) -> dict[Generation, SeqNo]:
        """For every generation that has a part in it, up to which of its changes."""
        reached = {self.generation: self.state.seqno}
        parts = [(generation, end) for generation, _, end in self.log()]
        if self.state.materialization is not None:
            parts.append((self._writer(self.state.materialization.descriptor), self.upto))
        for generation, end in parts:
            reached[generation] = max(end, reached.get(generation, end))
        return reached

    def _writer(self, name: str) -> Generation:
        """The generation that wrote an object."""
        writer = object_names.generation_of(name)
        return self.generation if writer is None else writer


@dataclass(frozen=True, slots=True)
class AlternateHistory:
    """Another way to a partition's state: an older chain up to a change, then the newer log."""

    older: SubtaskState
    """Ends where the newer log goes on."""
    newer: SubtaskState
    """Says to be materialized up to there."""
    slot: Slot
    """The checkpoint that the older chain is of."""


def alternate_history(chain: Chain, others: Iterable[Chain]) -> AlternateHistory | str:
    """The way from the newest older materialization among `others`, or why there is none.

    `others` are chains of the same partition in other checkpoints.
    """
    if chain.state.materialization is None:
        return NO_MATERIALIZATION
    older = [other for other in others if other.upto < chain.upto]
    if not older:
        return ONLY_ONE
    for other in sorted(older, key=lambda other: (other.upto, other.state.seqno), reverse=True):
        meeting = _join_point(other, chain)
        if meeting is not None:
            return AlternateHistory(
                msgspec.structs.replace(other.state, seqno=meeting),
                _materialized(chain.state, meeting),
                other.slot,
            )
    return LOG_IS_CUT


def _join_point(older: Chain, newer: Chain) -> SeqNo | None:
    """The change at which one can go over from the older chain to the newer chain's log."""
    theirs, ours = older.reached(), newer.reached()
    agreed = max((min(theirs[g], ours[g]) for g in theirs.keys() & ours.keys()), default=0)
    end = max((end for _, _, end in older.log()), default=older.upto)
    begin = min((first for _, first, _ in newer.log()), default=newer.upto)
    meeting = SeqNo(min(newer.upto, end, agreed))
    return meeting if meeting >= min(newer.upto, begin) else None


def _materialized(state: SubtaskState, upto: SeqNo) -> SubtaskState:
    assert state.materialization is not None
    ref = msgspec.structs.replace(state.materialization, upto=upto)
    return msgspec.structs.replace(state, materialization=ref)
