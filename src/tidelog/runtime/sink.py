"""The sink port: two-phase commit (Flink's TwoPhaseCommitSinkFunction, FLIP-143).

Invariants: what is written after one `pre_commit` becomes visible only by a `commit` of the next
transaction; a pre-committed transaction can be committed after any crash; `commit` is idempotent.
After a restart with another parallelism each transaction is recovered by exactly one subtask.
A sink without transactions (stdout, a callable) writes at once and is at least once.
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
    """Who writes: unique names for transactions are built from it."""

    job: str
    name: str
    subtask: int
    parallelism: int
    generation: Generation
    attempt: str
    retained: tuple[bytes, ...] | None = ()
    """The transactions of all sinks that a retained checkpoint names, so that a restore may ask
    for them; None when a checkpoint could not be read.
    """
    settled: Mapping[bytes, CheckpointId] = field(default_factory=dict)
    """Those of this sink that checkpoints older than the restored one name, and this one does not
    any more, each with the checkpoint that it was pre-committed for: all of them were committed
    before the restored one was completed, unless the job went back to an older one meanwhile.
    """
    begins: bool = False
    """The job begins with this start, which restores nothing."""
    clock: Clock = field(default_factory=SystemClock, compare=False)

    def answers_for(self, subtask: int) -> bool:
        """Whether what a subtask of that number left open, at whatever parallelism the job then
        had, is this one's to commit or to abort.
        """
        return successor(subtask, self.parallelism) == self.subtask

    def may_abort(self, generation: int, subtask: int) -> bool:
        """Whether what a subtask of that number and generation left open is this one's to remove.

        Never what a newer generation wrote: this process may have been held while it started, and
        a successor may count on it.
        """
        return generation <= self.generation and self.answers_for(subtask)


class SinkWriter(ABC):
    """The writer of one subtask; calls never overlap, slow ones run in a thread."""

    def recover(self, transactions: Sequence[bytes]) -> None:
        """Before any new data: commit these (again), and abort the others that are open, that no
        retained checkpoint names and that `SinkContext.may_abort` allows: those of this subtask
        and of the ones it answers for, written by this generation or an older one.
        """

    @abstractmethod
    def write(self, records: Sequence[Any]) -> None:
        """Add records to the open transaction; short, called in the event loop."""

    def full(self) -> bool:
        """Whether the task waits for `make_room` before it writes more; asked in the event loop."""
        return False

    def make_room(self) -> None:
        """Wait until the writer takes more records; what it raises stops the job."""

    def pre_commit(self, checkpoint: CheckpointId) -> bytes | None:
        """Make the open transaction durable and begin a new one; None when it is empty.

        A TidelogError gives up the checkpoint, and the job goes on: whether the failure came
        before or after the effect, the records must then be part of the next transaction. Any other
        exception, and FencedError, stops the job; the next start's `recover` aborts what was left.
        """
        return None

    def commit(self, transaction: bytes) -> None:
        """Make a pre-committed transaction visible; idempotent."""

    def close(self) -> None:
        """Release resources; never commits. Called once, when no other call is under way."""


class Sink(ABC):
    """Describes where records go; opens a writer per subtask."""

    target: Path | None = None
    """The path that no other sink of the job may write to, if there is one."""
    example_file: Path | None = None
    """The path of a file as the sink makes them, if it makes some: no source may read those."""

    transaction_format: int = 1
    """Format of its pre-committed transactions: raise it when releases of the sink before this one
    cannot commit them. A start that would go back to one of those is refused before it changes
    anything."""

    @abstractmethod
    def open(self, context: SinkContext) -> SinkWriter: ...
