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
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

from tests.simulator.machine.process import Process
from tidelog import Files, Sink, SinkContext, SinkWriter, Sqlite
from tidelog.ids import CheckpointId

_TABLE = "records"


Committing = Callable[[str, Process, bytes, Sequence[Any]], None]
"""Called with sink, process, transaction and records at the moment a commit takes effect."""


class Output(ABC):
    """Where one sink of a job writes, as the world sees it."""

    @abstractmethod
    def writer(self, process: Process, fails: float, context: SinkContext) -> SinkWriter:
        """A writer of one process; a share of its calls fails."""

    def visible(self) -> Counter[str] | None:
        """The records that a reader sees, as text; None when every commit was watched."""
        return None


@dataclass(frozen=True, eq=False)
class ExternalSink(Sink):
    """What lies outside of a process, as that process reaches it."""

    output: Output
    process: Process
    fails: float

    def open(self, context: SinkContext) -> SinkWriter:
        self.process.check_alive()
        return self.output.writer(self.process, self.fails, context)


class ExternalOutput(Output):
    """A transactional system outside of every process."""

    def __init__(self, name: str, committing: Committing) -> None:
        self.name = name
        self.prepared: dict[bytes, list[Any]] = {}
        self._committing = committing
        self._done: set[bytes] = set()

    def writer(self, process: Process, fails: float, context: SinkContext) -> SinkWriter:
        return _ExternalWriter(self, process, fails, context)

    def commit(self, process: Process, transaction: bytes) -> None:
        process.check_alive()
        if transaction not in self._done:
            records = self.prepared.pop(transaction)
            self._committing(self.name, process, transaction, records)
            self._done.add(transaction)


class _ExternalWriter(SinkWriter):
    """Its calls fail before or after their effect."""

    def __init__(
        self, output: ExternalOutput, process: Process, fails: float, context: SinkContext
    ) -> None:
        self._output = output
        self._process = process
        self._fails = fails
        # Jobs of two stores may count the same generations.
        self._id = f"{context.name}/{context.subtask}/{context.generation}-{context.attempt}"
        self._records: list[Any] = []

    def recover(self, transactions: Sequence[bytes]) -> None:
        for transaction in transactions:
            self._output.commit(self._process, transaction)

    def write(self, records: Sequence[Any]) -> None:
        self._records.extend(records)

    def pre_commit(self, checkpoint: CheckpointId) -> bytes | None:
        self._may_fail("pre-commit")
        if not self._records:
            return None
        token = f"{self._id}/{checkpoint}".encode()
        self._output.prepared[token] = self._records
        self._records = []
        self._may_fail("pre-commit")
        return token

    def commit(self, transaction: bytes) -> None:
        self._may_fail("commit")
        self._output.commit(self._process, transaction)
        self._may_fail("commit")

    def _may_fail(self, call: str) -> None:
        self._process.check_alive()
        if self._fails and self._process.rng.random() < self._fails / 2:
            raise ConnectionError(f"{call} of sink {self._output.name}, simulated")


class FilesOutput(Output):
    """tidelog's file sink; parts are cut so often that a transaction has several."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def writer(self, process: Process, fails: float, context: SinkContext) -> SinkWriter:
        files = Files(self._directory, format=repr, max_part_bytes=200)
        return _DiskWriter(files.open(context), process, fails, lambda record: record)

    def visible(self) -> Counter[str]:
        parts = self._directory.glob("part-*")
        return Counter(line for part in parts for line in part.read_text().splitlines())


class SqliteOutput(Output):
    """tidelog's SQLite sink."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "output.db"

    def writer(self, process: Process, fails: float, context: SinkContext) -> SinkWriter:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        sqlite = Sqlite(self._path, _TABLE, {"record": "TEXT"})
        return _DiskWriter(sqlite.open(context), process, fails, lambda record: (repr(record),))

    def visible(self) -> Counter[str]:
        if not self._path.exists():
            return Counter()
        with closing(sqlite3.connect(self._path)) as connection:
            return Counter(text for (text,) in connection.execute(f"SELECT record FROM {_TABLE}"))


def make_output(rng: Random, name: str, disk: Path | None, committing: Committing) -> Output:
    """One of the kinds; without a disk a system outside."""
    kind = rng.choice(("outside", "files", "files", "sqlite"))
    if disk is None or kind == "outside":
        return ExternalOutput(name, committing)
    return FilesOutput(disk / name) if kind == "files" else SqliteOutput(disk / name)


@dataclass(frozen=True, eq=False)
class _DiskWriter(SinkWriter):
    """A writer of a sink on disk, as one process reaches it."""

    inner: SinkWriter
    process: Process
    fails: float
    form: Callable[[Any], Any]

    def recover(self, transactions: Sequence[bytes]) -> None:
        self.process.check_alive()
        self.inner.recover(transactions)

    def write(self, records: Sequence[Any]) -> None:
        self.process.check_alive()
        self.inner.write(list(map(self.form, records)))

    def pre_commit(self, checkpoint: CheckpointId) -> bytes | None:
        self.process.check_alive()

        def sync(descriptor: int) -> None:
            """Takes no time, and fails now and then."""
            if self.fails > 0 and self.process.rng.random() < self.fails:
                raise OSError(errno.EIO, "the disk fails (simulated)")

        with mock.patch.object(os, "fsync", sync):
            return self.inner.pre_commit(checkpoint)

    def commit(self, transaction: bytes) -> None:
        self.process.check_alive()
        self.inner.commit(transaction)

    def close(self) -> None:
        if not self.process.dead:
            self.inner.close()
            return
        # A killed process cleans nothing up; the operating system closes its handles.
        for part in getattr(self.inner, "_parts", ()):
            part._close()
        database = getattr(self.inner, "_database", None)
        if database is not None:
            database.close()
