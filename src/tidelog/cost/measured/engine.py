"""The port that gathers facts of blocks and changes; each engine does it in its own way.

Invariant: both engines count the same: a block once per checkpoint that names it, and once in all;
state metadata counts as a block without changes.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from tidelog.checkpoint.manifest import Checkpoint
from tidelog.concurrency import Progress
from tidelog.cost.measured.facts import BlockFacts, Held, Rows, Written


class Engine(Protocol):
    """Reads the log of checkpoints."""

    @property
    def name(self) -> str:
        """The name that option --engine takes."""
        ...

    async def blocks(self, checkpoints: Sequence[Checkpoint], progress: Progress) -> BlockFacts:
        """The blocks in the logs of some checkpoints; of one that is dropped meanwhile, a part.

        Raises CorruptObjectError and FormatVersionError, and what the store raises.
        """
        ...

    async def changes(
        self, checkpoints: Sequence[Checkpoint], logs: Collection[Held], progress: Progress
    ) -> Mapping[Written, Rows]:
        """The changes in some logs, by state and operation; raises like `blocks`."""
        ...
