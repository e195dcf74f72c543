"""What simulated jobs write to: a transactional system outside, or tidelog's own sinks on disk.

Invariants: what a dead process calls has no effect; what is pre-committed outside survives every
crash, becomes visible once, however often it is committed, and is shown to the watcher before it
counts; a disk that fails does so within `pre_commit`, as a full one does; what is visible is read
back without tidelog.
"""

import errno
import os
import sqlite3
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

from tests.simulator.machine.process import Process
from tests.support.output_files import output_lines
from tidelog import FileSink, Sink, SinkContext, SinkWriter, SqliteSink
from tidelog.ids import CheckpointId

Committing = Callable[[str, Process, bytes, Sequence[Any]], None]
"""Called with sink, process, transaction and records at the moment a commit takes effect."""


class Output(ABC):
    """Where one sink of a job writes, as the world sees it."""

    form: Callable[[Any], Any]
    """What it is given for a record."""

    @abstractmethod
    def open(self, context: SinkContext, process: Process) -> SinkWriter: ...

    @abstractmethod
    def visible(self) -> Counter[str] | None:
        """The records that a reader sees, as text; None when every commit was watched."""


@dataclass(frozen=True, eq=False)
class SimulatedSink(Sink):
    """An output as one process reaches it; a share of its calls fails."""

    output: Output
    process: Process
    fails: float

    def open(self, context: SinkContext) -> SinkWriter:
        self.process.check_alive()
        return _Writer(self, self.output.open(context, self.process))


@dataclass(frozen=True, eq=False)
class _Writer(SinkWriter):
    sink: SimulatedSink
    inner: SinkWriter

    def recover(self, transactions: Sequence[bytes]) -> None:
        self.sink.process.check_alive()
        self.inner.recover(transactions)

    def write(self, records: Sequence[Any]) -> None:
        self.sink.process.check_alive()
        self.inner.write(list(map(self.sink.output.form, records)))

    def pre_commit(self, checkpoint: CheckpointId) -> bytes | None:
        self._may_fail("pre-commit")
        with mock.patch.object(os, "fsync", self._sync):
            token = self.inner.pre_commit(checkpoint)
        self._may_fail("pre-commit")
        return token

    def commit(self, transaction: bytes) -> None:
        self._may_fail("commit")
        self.inner.commit(transaction)
        self._may_fail("commit")

    def close(self) -> None:
        if not self.sink.process.dead:
            self.inner.close()
            return
        # A killed process cleans nothing up; the operating system closes its handles.
        for part in getattr(self.inner, "_parts", ()):
            part._close()
        database = getattr(self.inner, "_database", None)
        if database is not None:
            database.close()

    def _may_fail(self, call: str) -> None:
        """Before the effect of a call or after it."""
        self.sink.process.check_alive()
        if self.sink.process.rng.random() < self.sink.fails / 2:
            raise ConnectionError(f"{call} of a sink, simulated")

    def _sync(self, descriptor: int) -> None:
        """Takes no time, and fails now and then."""
        if self.sink.process.rng.random() < self.sink.fails:
            raise OSError(errno.EIO, "the disk fails (simulated)")


class ExternalOutput(Output):
    """A transactional system outside of every process."""

    def __init__(self, name: str, committing: Committing) -> None:
        self.form = lambda record: record
        self.prepared: dict[bytes, list[Any]] = {}
        self._name = name
        self._committing = committing
        self._done: set[bytes] = set()

    def open(self, context: SinkContext, process: Process) -> SinkWriter:
        return _ExternalWriter(self, context, process)

    def visible(self) -> None:
        return None

    def commit(self, process: Process, transaction: bytes) -> None:
        if transaction not in self._done:
            records = self.prepared.pop(transaction)
            self._committing(self._name, process, transaction, records)
            self._done.add(transaction)


class _ExternalWriter(SinkWriter):
    def __init__(self, output: ExternalOutput, context: SinkContext, process: Process) -> None:
        self._output = output
        self._process = process
        # Jobs of two stores may count the same generations.
        self._id = f"{context.name}/{context.subtask}/{context.generation}-{context.attempt}"
        self._records: list[Any] = []

    def recover(self, transactions: Sequence[bytes]) -> None:
        for transaction in transactions:
            self.commit(transaction)

    def write(self, records: Sequence[Any]) -> None:
        self._records.extend(records)

    def pre_commit(self, checkpoint: CheckpointId) -> bytes | None:
        if not self._records:
            return None
        token = f"{self._id}/{checkpoint}".encode()
        self._output.prepared[token] = self._records
        self._records = []
        return token

    def commit(self, transaction: bytes) -> None:
        self._output.commit(self._process, transaction)


@dataclass(frozen=True, eq=False)
class DiskOutput(Output):
    """One of tidelog's own sinks, as it is on disk."""

    sink: Sink
    form: Callable[[Any], Any]
    read: Callable[[], Iterable[str]]

    def open(self, context: SinkContext, process: Process) -> SinkWriter:
        return self.sink.open(context)

    def visible(self) -> Counter[str]:
        return Counter(self.read())


def make_output(rng: Random, name: str, disk: Path | None, committing: Committing) -> Output:
    """One of the kinds; without a disk a system outside."""
    kind = rng.choice(("outside", "files", "files", "sqlite"))
    if disk is None or kind == "outside":
        return ExternalOutput(name, committing)
    directory = disk / name
    directory.mkdir(parents=True)
    if kind == "files":
        # Parts so short that a transaction has several.
        files = FileSink(directory, format=str, roll_bytes=200)
        return DiskOutput(files, repr, partial(_lines, directory))
    path = directory / "output.db"
    sqlite = SqliteSink(path, "records", {"record": "TEXT"})
    return DiskOutput(sqlite, lambda record: (repr(record),), partial(_rows, path))


def _lines(directory: Path) -> list[str]:
    return output_lines(directory)


def _rows(path: Path) -> list[str]:
    if not path.exists():
        return []
    with closing(sqlite3.connect(path)) as connection:
        return [text for (text,) in connection.execute("SELECT record FROM records")]
