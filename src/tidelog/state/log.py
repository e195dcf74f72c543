"""The durable side of a subtask's state: its log chain and what lies below it.

Invariants: `base` covers a prefix of the changes and the chain holds at least the rest; both change
together, so a capture at any moment is a consistent pair. A change leaves the chain only when it is
in a materialization *and* in the log of a completed checkpoint, or in two materializations, so that
logs of checkpoints tell the history without a gap, whenever tables are uploaded.
"""

from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from tidelog.changelog.block import SealedBlock
from tidelog.changelog.chain import ChainCapture, SubtaskLogChain
from tidelog.changelog.change import ChangeBatch
from tidelog.changelog.uploader import Uploader
from tidelog.checkpoint.manifest import InheritedState, MaterializationRef, SubtaskState
from tidelog.checkpoint.retention import layer_objects
from tidelog.ids import SeqNo

_NO_CHANGE = SeqNo(0)


class NoLog:
    """The changelog is off: changes reach the table only."""

    def submit(self, batch: ChangeBatch) -> None:
        """Nothing to log."""

    def submit_metadata(self, block: SealedBlock) -> None:
        """Nothing to log."""


class Base(msgspec.Struct, frozen=True):
    """What the log of a subtask continues: a materialization, or what the subtask inherited."""

    materialization: MaterializationRef | None = None
    inherited: tuple[InheritedState, ...] = ()
    start: SeqNo = _NO_CHANGE
    """Number of the subtask's first change."""

    @classmethod
    def of(cls, state: SubtaskState) -> "Base":
        """What a stored subtask's log continues."""
        return cls(state.materialization, state.inherited, state.start)

    def objects(self) -> set[str]:
        """Objects that the base names directly."""
        names = set().union(*map(layer_objects, self.inherited))
        return names if self.materialization is None else names | {self.materialization.descriptor}

    @property
    def upto(self) -> SeqNo:
        """Sequence number of the first change after the base."""
        return self.start if self.materialization is None else self.materialization.upto

    @property
    def changes(self) -> int:
        """Changes that were inherited as log: a restore replays them too."""
        return sum(layer.seqno - layer.upto for layer in self.inherited)


class ChangeSink(Protocol):
    """Where flushed changes go besides the table: the log, or nowhere when it is off."""

    def submit(self, batch: ChangeBatch) -> None: ...

    def submit_metadata(self, block: SealedBlock) -> None: ...


@dataclass(slots=True)
class FlushMetrics:
    """Counters since the start."""

    flushes: int = 0
    changes: int = 0
    """Rows of states that flushes wrote to the log, without those that are hidden."""
    updates: int = 0
    """Puts, deletes and appends that `changes` combine."""


@dataclass(slots=True)
class SubtaskLog:
    """Log of one subtask: the change sink of its backend."""

    uploader: Uploader
    chain: SubtaskLogChain
    base: Base = field(default_factory=Base)
    complete: bool = True
    """False: the table holds more than the base and the chain, until the next snapshot."""
    checkpointed: SeqNo = _NO_CHANGE
    """Changes below are in a completed checkpoint."""
    _lost: bool = False
    """The store has lost a part of the base or the chain, until the next snapshot."""

    def submit(self, batch: ChangeBatch) -> None:
        self.uploader.submit(self.chain, batch)

    def submit_metadata(self, block: SealedBlock) -> None:
        """Hand sealed metadata (or a restored inline block) to the uploader."""
        self.uploader.submit_block(self.chain, block)

    @property
    def materialization(self) -> MaterializationRef | None:
        return self.base.materialization

    def capture(self) -> tuple[Base, ChainCapture]:
        """What a checkpoint taken now consists of."""
        return self.base, self.chain.capture()

    def materialized(self, ref: MaterializationRef) -> None:
        """A snapshot is durable: the log is cut there, unless a newer one was faster.

        What no checkpoint has completed with yet stays, but no longer than to the next snapshot.
        """
        if self.materialization is None or self.materialization.upto <= ref.upto:
            before = self.base.upto
            self.base = Base(ref, start=self.base.start)
            self.complete = True
            # A log with a gap tells no history: nothing is to refer to what is left of it.
            logged = ref.upto if self._lost else max(before, self.checkpointed)
            self._lost = False
            self.chain.truncate(min(ref.upto, logged))

    def start_over(self) -> None:
        """The store has lost a part of it: the next snapshot is to stand for all of it."""
        self._lost = True

    def completed(self, seqno: SeqNo) -> None:
        """A checkpoint with the changes below `seqno` completed."""
        self.checkpointed = max(self.checkpointed, seqno)
        if self.materialization is not None:
            self.chain.truncate(min(self.materialization.upto, self.checkpointed))

    def objects(self) -> set[str]:
        """Objects a checkpoint taken now would name directly."""
        return self.chain.objects() | self.base.objects()
