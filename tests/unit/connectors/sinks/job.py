"""A job of one source and one sink subtask, reduced to its checkpoints, that can crash anywhere.

The records are the numbers from 0 on, so what a sink shows is right when it counts up without
gaps or repetitions to where the last committed checkpoint stood.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.pipelines import Portions
from tidelog import Job
from tidelog.ids import CheckpointId, Generation
from tidelog.runtime.sink import Sink, SinkContext, SinkWriter

STEPS = ("write", "pre_commit", "complete", "commit", "crash")


def context(generation: int = 1, subtask: int = 0, attempt: str = "a") -> SinkContext:
    return SinkContext("job", "sink", subtask, 4, Generation(generation), attempt)


def copying(records: Sequence[Any], sink: Sink) -> Job:
    """A job that reads these records, a few at a time, and writes them to a sink."""
    job = Job("numbers")
    job.source(Portions({"all": list(records)})).sink(sink)
    return job


def pre_committed(
    writer: Any, checkpoint: int = 1, *records: Any, usual: Sequence[Any] = ()
) -> bytes:
    """The transaction of a checkpoint with these records, or the usual ones."""
    writer.write(list(records or usual))
    transaction = writer.pre_commit(CheckpointId(checkpoint))
    assert isinstance(transaction, bytes)
    return transaction


@dataclass
class Checkpoint:
    """The source's position and the transactions not known to be committed."""

    position: int = 0
    transactions: list[bytes] = field(default_factory=list)


class SinkJob:
    """Runs the protocol step by step; `shown` says what readers of the sink see."""

    def __init__(self, open_sink: Callable[[], Sink], shown: Callable[[], list[int]]) -> None:
        self._open_sink = open_sink
        self._shown = shown
        self._generation = 0
        self._last_id = 0
        self._writer: SinkWriter | None = None
        self._pending: Checkpoint | None = None
        self.completed = Checkpoint()
        self.committed = 0
        self.restart()

    def restart(self) -> None:
        """A new generation takes over from the last completed checkpoint."""
        self._generation += 1
        self._writer = self._open_sink().open(context(self._generation))
        self._writer.recover(self.completed.transactions)
        self._position = self.committed = self.completed.position
        self._uncommitted = list(self.completed.transactions)
        self._pending = None

    def run(self, steps: Sequence[str]) -> None:
        for step in steps:
            getattr(self, step)()
            self.check()

    def check(self) -> None:
        assert self._shown() == list(range(self.committed))

    def write(self) -> None:
        assert self._writer
        self._writer.write([(self._position + n,) for n in range(3)])
        self._position += 3

    def pre_commit(self) -> None:
        """Also when the one before never completed: its transactions then travel with this."""
        assert self._writer
        self._last_id += 1
        transaction = self._writer.pre_commit(CheckpointId(self._last_id))
        if transaction is not None:
            self._uncommitted.append(transaction)
        self._pending = Checkpoint(self._position, list(self._uncommitted))

    def complete(self) -> None:
        """The manifest is stored; from here on the checkpoint counts."""
        if self._pending is not None:
            self.completed, self._pending = self._pending, None

    def commit(self) -> None:
        """Also once more: commits that were done before change nothing."""
        assert self._writer
        for transaction in self.completed.transactions:
            self._writer.commit(transaction)
        self._uncommitted = [t for t in self._uncommitted if t not in self.completed.transactions]
        self.committed = self.completed.position

    def crash(self) -> None:
        """The writer is gone without a word, and its files stay as they are."""
        self._writer = None
        self.restart()
