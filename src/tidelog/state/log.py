"""The durable side of a subtask's state: its log chain and its last materialization.

Invariants: `materialization` covers a prefix of the changes and the chain holds the rest; both
change together, so a capture at any moment is a consistent pair.
"""

from dataclasses import dataclass

from tidelog.changelog.block import SealedBlock
from tidelog.changelog.change import ChangeBatch
from tidelog.checkpoint.manifest import MaterializationRef
from tidelog.dstl.chain import ChainCapture, LogChain
from tidelog.dstl.uploader import Uploader
from tidelog.ids import SeqNo


class NoLog:
    """The changelog is off: changes reach the table only."""

    def submit(self, batch: ChangeBatch) -> None:
        """Nothing to log."""

    def submit_metadata(self, block: SealedBlock) -> None:
        """Nothing to log."""


@dataclass(slots=True)
class SubtaskLog:
    """Log of one subtask: the change sink of its backend."""

    uploader: Uploader
    chain: LogChain
    materialization: MaterializationRef | None = None
    complete: bool = True
    """False: the table holds more than materialization and chain, until the next snapshot."""

    def submit(self, batch: ChangeBatch) -> None:
        """Hand the changes of a flush to the uploader."""
        self.uploader.submit(self.chain, batch)

    def submit_metadata(self, block: SealedBlock) -> None:
        """Hand sealed metadata (or a restored inline block) to the uploader."""
        self.uploader.submit_block(self.chain, block)

    def capture(self) -> tuple[MaterializationRef | None, ChainCapture]:
        """What a checkpoint taken now consists of."""
        return self.materialization, self.chain.capture()

    def materialized(self, ref: MaterializationRef) -> None:
        """A snapshot is durable: the log is cut behind it, unless a newer one was faster."""
        if self.materialization is None or self.materialization.upto <= ref.upto:
            self.materialization = ref
            self.complete = True
            self.chain.truncate(ref.upto)

    def objects(self) -> set[str]:
        """Objects a checkpoint taken now would name directly."""
        names = self.chain.objects()
        return names if self.materialization is None else names | {self.materialization.descriptor}

    @property
    def materialized_upto(self) -> SeqNo:
        """Changes below this are in the last materialization."""
        return self.materialization.upto if self.materialization else SeqNo(0)
