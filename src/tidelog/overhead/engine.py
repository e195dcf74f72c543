"""The port that gathers facts of blocks and changes; each engine does it in its own way.

Invariant: both engines count the same: a block once per checkpoint that names it, and once in all;
state metadata counts as a block without changes.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from tidelog.checkpoint.bounded import Progress
from tidelog.checkpoint.manifest import Checkpoint, SubtaskState
from tidelog.overhead.facts import BlockFacts, Held, Rows, Written


class BlockKey(NamedTuple):
    """What tells one block of a subtask from all others, wherever a copy of it lies."""

    metadata: bool
    first: int
    end: int
    raw_bytes: int
    stored_bytes: int


class Engine(Protocol):
    """Reads the log of checkpoints."""

    @property
    def name(self) -> str:
        """As the command line calls it."""
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


def subtasks(checkpoints: Iterable[Checkpoint]) -> dict[Held, SubtaskState]:
    """The subtasks of all these checkpoints."""
    return {
        Held(checkpoint.slot, operator.id, state.index): state
        for checkpoint in checkpoints
        for operator, state in checkpoint.subtasks()
    }


def start_of(state: SubtaskState) -> int:
    """Where the log of a subtask begins: behind its materialization, or what it inherited."""
    return state.upto
