"""Where simulated jobs write: a transactional system outside of every process.

Invariants: what is pre-committed survives every crash; a transaction becomes visible once,
however often it is committed; each first commit is shown to the watcher before it counts.
"""

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any, Protocol

from tests.simulator.machine.process import Process
from tidelog.ids import CheckpointId
from tidelog.runtime.sink import Sink, SinkContext, SinkWriter


class CommitWatcher(Protocol):
    """Sees commits at the moment they take effect."""

    def committing(
        self, sink: str, process: Process, transaction: bytes, records: Sequence[Any]
    ) -> None: ...


class ExternalSystem:
    """The system behind one sink."""

    def __init__(self, name: str, watcher: CommitWatcher) -> None:
        self.name = name
        self.watcher = watcher
        self.prepared: dict[bytes, list[Any]] = {}
        self.committed: Counter[Any] = Counter()
        self.done: set[bytes] = set()


class ExternalSink(Sink):
    """A sink as one process reaches it; a share of the calls fails, before or after its effect."""

    def __init__(
        self, outside: ExternalSystem, process: Process, fails: float, rng: Random
    ) -> None:
        self._outside = outside
        self._process = process
        self._fails = fails
        self._rng = rng

    def open(self, context: SinkContext) -> SinkWriter:
        return _Writer(self, context)

    def _trouble(self, call: str) -> None:
        self._process.check_alive()
        if self._fails and self._rng.random() < self._fails / 2:
            raise ConnectionError(f"{call} of sink {self._outside.name}, simulated")


class _Writer(SinkWriter):
    def __init__(self, sink: ExternalSink, context: SinkContext) -> None:
        self._sink = sink
        self._outside = sink._outside
        # Jobs of two stores may count the same generations.
        self._who = f"{context.name}/{context.subtask}/{context.generation}-{context.attempt}"
        self._open: list[Any] = []

    def recover(self, transactions: Sequence[bytes]) -> None:
        for transaction in transactions:
            self._commit(transaction)

    def write(self, records: Sequence[Any]) -> None:
        self._open.extend(records)

    def pre_commit(self, checkpoint: CheckpointId) -> bytes | None:
        self._sink._trouble("pre-commit")
        if not self._open:
            return None
        token = f"{self._who}/{checkpoint}".encode()
        self._outside.prepared[token] = self._open
        self._open = []
        self._sink._trouble("pre-commit")
        return token

    def commit(self, transaction: bytes) -> None:
        self._sink._trouble("commit")
        self._commit(transaction)
        self._sink._trouble("commit")

    def _commit(self, transaction: bytes) -> None:
        outside = self._outside
        self._sink._process.check_alive()
        if transaction in outside.done:
            return
        records = outside.prepared.pop(transaction)
        outside.watcher.committing(outside.name, self._sink._process, transaction, records)
        outside.committed.update(records)
        outside.done.add(transaction)
