"""The sink port: what a sink of your own implements, for output that is exactly once.

Each subtask has a writer. A checkpoint calls `pre_commit`, which makes the records since the last
one durable, but not visible, and returns bytes that name them: a transaction. The checkpoint stores
these bytes. When it is complete, `commit` makes the transaction visible. After a restart `recover`
commits the transactions of the restored checkpoint again, and removes all others that are open.
These are the two phases of Flink's TwoPhaseCommittingSink (FLIP-143). A sink without transactions
only implements `write`, which makes records visible at once: output is at least once.

Invariants: records become visible only by `commit`; a transaction can be committed after any
crash, and more than once; after a restart with another parallelism exactly one subtask recovers
each transaction.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidelog.effects import Clock, SystemClock
from tidelog.ids import CheckpointId, Generation
from tidelog.state.key_groups import successor


@dataclass(frozen=True, slots=True)
class SinkContext:
    """Which subtask writes, for unique names of transactions, and which transactions there are."""

    job: str
    name: str
    """The sink's name in the job."""
    subtask: int
    parallelism: int
    generation: Generation
    """Counts the starts of the job: each start has a greater one than those before."""
    attempt: str
    """Differs from process to process, also within one generation."""
    retained_transactions: tuple[bytes, ...] | None = ()
    """The transactions of all sinks in all retained checkpoints: the job may be started from any of
    these, so they stay. None: a checkpoint could not be read, so nothing may be removed.
    """
    own_transactions: tuple[bytes, ...] = ()
    """Those of `retained_transactions` that a sink of this name wrote. Others may look the same, as
    files of one name in the directories of two sinks do.
    """
    committed_transactions: Mapping[bytes, CheckpointId] = field(default_factory=dict)
    """Transactions of this sink that retained checkpoints before the restored one name and the
    restored one does not, each with the checkpoint of its pre-commit. All were committed before the
    restored checkpoint completed, unless the job went back to an older checkpoint since.
    """
    is_new_job: bool = False
    """The job starts without a checkpoint."""
    clock: Clock = field(default_factory=SystemClock, compare=False)

    def recovers_for(self, subtask: int) -> bool:
        """Whether this subtask recovers the transactions of that one, which an earlier start ran,
        maybe with another parallelism.
        """
        return successor(subtask, self.parallelism) == self.subtask

    def may_abort(self, generation: int, subtask: int) -> bool:
        """Whether this subtask may remove open transactions of that one and that generation.

        Never those of a newer generation: this process may have stood still while it started, and
        a newer one needs them.
        """
        return generation <= self.generation and self.recovers_for(subtask)


class SinkWriter(ABC):
    """Writes the records of one subtask. Calls never overlap; all but `write`, `full` and `due` are
    made in a thread, and may wait.
    """

    def recover(self, transactions: Sequence[bytes]) -> None:
        """Commit these transactions, which may be committed already, and remove other open ones.

        Called once, before `write`. Remove only what `SinkContext.may_abort` allows and what is not
        among `SinkContext.retained_transactions`.
        """

    @abstractmethod
    def write(self, records: Sequence[Any]) -> None:
        """Add records to the open transaction. Called in the event loop: must not wait."""

    def full(self) -> bool:
        """Whether to call `make_room` before the next `write`. Called in the event loop."""
        return False

    def due(self) -> bool:
        """Whether output waits for a checkpoint alone, such as a file that is complete by its age:
        then an idle job takes one. Called in the event loop.
        """
        return False

    def make_room(self) -> None:
        """Wait until the writer can take more records. What it raises stops the job."""

    def pre_commit(self, checkpoint: CheckpointId) -> bytes | None:
        """Make the open transaction durable, and begin a new one; None: it has no records.

        A TidelogError gives the checkpoint up, and the job continues: the records must then be in
        the next transaction, even if they are durable already. FencedError and all other exceptions
        stop the job; `recover` of the next start removes what is open.
        """
        return None

    def commit(self, transaction: bytes) -> None:
        """Make a transaction visible. It may be visible already."""

    def close(self) -> None:
        """Release everything, and commit nothing. Called once, as the last call."""


class Sink(ABC):
    """Describes an output, and opens a writer for each subtask. Needed is `open`."""

    output_path: Path | None = None
    """The directory or file of the output: a job with two sinks of the same path is refused."""
    example_file: Path | None = None
    """A path such as those of the files that the sink writes: a job whose source would read it is
    refused."""
    transaction_format: int = 1
    """The format of the transactions. Raise it when earlier releases of the sink cannot commit
    them: a job that would go back to such a release is refused before it changes anything."""

    @abstractmethod
    def open(self, context: SinkContext) -> SinkWriter: ...
