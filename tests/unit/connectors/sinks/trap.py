"""Failures of the calls that a sink makes into the operating system or a database.

A trap counts the calls of one phase of the protocol, such as the second pre-commit of a job, and
lets some of them fail, before their effect or after it.
"""

import errno
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Literal

import pytest
from confluent_kafka import KafkaError

from tests.support import fake_kafka
from tidelog.connectors.iceberg.staged import SinkDirectory
from tidelog.ids import CheckpointId
from tidelog.runtime.sink import Sink, SinkContext, SinkWriter

Phase = Literal["recover", "pre_commit", "commit"]


@dataclass
class Trap:
    """The calls from `first` on that fail at certain times of a phase, counted from 1."""

    phase: Phase
    turns: tuple[int, ...]
    first: int = 0
    count: int = 1
    after: bool = False
    """The call has its effect, and fails all the same."""
    fired: bool = False
    _turns: int = 0
    _calls: int | None = None

    @contextmanager
    def during(self, phase: Phase) -> Iterator[None]:
        self._turns += phase == self.phase
        self._calls = 0 if phase == self.phase and self._turns in self.turns else None
        try:
            yield
        finally:
            self._calls = None

    def call(self, effect: Callable[[], Any], error: Exception) -> Any:
        if self._calls is None:
            return effect()
        at, self._calls = self._calls, self._calls + 1
        fails = self.first <= at < self.first + self.count
        self.fired |= fails
        if fails and not self.after:
            raise error
        result = effect()
        if fails:
            raise error
        return result


def trapped(inner: Sink, trap: Trap) -> Sink:
    """A sink whose writers fall into a trap; of the inner one's class, whose output it writes."""

    def open_trapped(self: Sink, context: SinkContext) -> SinkWriter:
        return _TrappedWriter(inner.open(context), trap)

    kind = type(f"Trapped{type(inner).__name__}", (type(inner),), {"open": open_trapped})
    made: Sink = object.__new__(kind)
    return made


class _TrappedWriter(SinkWriter):
    def __init__(self, inner: SinkWriter, trap: Trap) -> None:
        self._inner = inner
        self._trap = trap

    def recover(self, transactions: Sequence[bytes]) -> None:
        with self._trap.during("recover"):
            self._inner.recover(transactions)

    def write(self, records: Sequence[Any]) -> None:
        self._inner.write(records)

    def full(self) -> bool:
        return self._inner.full()

    def due(self) -> bool:
        return self._inner.due()

    def make_room(self) -> None:
        self._inner.make_room()

    def pre_commit(self, checkpoint: CheckpointId) -> bytes | None:
        with self._trap.during("pre_commit"):
            return self._inner.pre_commit(checkpoint)

    def commit(self, transaction: bytes) -> None:
        with self._trap.during("commit"):
            self._inner.commit(transaction)

    def close(self) -> None:
        self._inner.close()


def lay(trap: Trap, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the calls of a kind of sink go through the trap."""
    lay_of_kind = {
        "files": _of_files,
        "sqlite": _of_sqlite,
        "postgres": _of_postgres,
        "iceberg": _of_iceberg,
        "kafka": _of_kafka,
    }
    lay_of_kind[kind](trap, monkeypatch)


def _of_files(trap: Trap, monkeypatch: pytest.MonkeyPatch) -> None:
    error = OSError(errno.EIO, os.strerror(errno.EIO))
    for owner, name in [
        (os, "fsync"),
        (os, "open"),
        *((Path, name) for name in ("stat", "rename", "unlink", "mkdir", "glob")),
    ]:
        _guard(trap, owner, name, error, monkeypatch)
    opened = Path.open

    def open_file(path: Path, *args: Any, **options: Any) -> Any:
        return _File(trap.call(lambda: opened(path, *args, **options), error), trap, error)

    monkeypatch.setattr(Path, "open", open_file)


class _File:
    def __init__(self, inner: IO[bytes], trap: Trap, error: Exception) -> None:
        self._inner = inner
        self._trap = trap
        self._error = error

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name not in ("write", "read", "flush", "close"):
            return found
        return lambda *args: self._trap.call(lambda: found(*args), self._error)

    def __enter__(self) -> "_File":
        return self

    def __exit__(self, *_: object) -> None:
        self._inner.close()


def _of_sqlite(trap: Trap, monkeypatch: pytest.MonkeyPatch) -> None:
    class Connection(sqlite3.Connection):
        def execute(self, *args: Any) -> Any:
            return trap.call(lambda: super(Connection, self).execute(*args), self.failure())

        def executemany(self, *args: Any) -> Any:
            return trap.call(lambda: super(Connection, self).executemany(*args), self.failure())

        def failure(self) -> Exception:
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR
            return error

    connect = sqlite3.connect

    def trapped(path: Path, **options: Any) -> sqlite3.Connection:
        error = sqlite3.OperationalError("unable to open database file")
        return trap.call(lambda: connect(path, factory=Connection, **options), error)  # type: ignore[no-any-return]

    monkeypatch.setattr("tidelog.connectors.sql.sqlite.sqlite3.connect", trapped)


def _of_postgres(trap: Trap, monkeypatch: pytest.MonkeyPatch) -> None:
    psycopg = import_module("psycopg")
    error = psycopg.OperationalError("the server closed the connection")
    for name in ("execute", "copy"):
        _guard(trap, psycopg.RawCursor, name, error, monkeypatch)


def _of_iceberg(trap: Trap, monkeypatch: pytest.MonkeyPatch) -> None:
    error = OSError(errno.EIO, os.strerror(errno.EIO))
    catalog = import_module("pyiceberg.catalog.sql").SqlCatalog
    files = import_module("pyiceberg.io.pyarrow").PyArrowFileIO
    for owner, names in [
        (catalog, ("load_table", "commit_table")),
        (files, ("new_output", "new_input", "delete")),
        (SinkDirectory, ("announce", "announced", "settled", "remove", "size")),
    ]:
        for name in names:
            _guard(trap, owner, name, error, monkeypatch)


def _of_kafka(trap: Trap, monkeypatch: pytest.MonkeyPatch) -> None:
    error = fake_kafka.failure(KafkaError._TIMED_OUT)
    failing = {
        fake_kafka.Producer: (
            *("produce", "init_transactions", "begin_transaction"),
            *("commit_transaction", "abort_transaction"),
        ),
        fake_kafka.Consumer: ("get_watermark_offsets", "assign", "consume"),
        fake_kafka.Admin: ("list_topics",),
    }
    for owner, names in failing.items():
        for name in names:
            _guard(trap, owner, name, error, monkeypatch)


def _guard(
    trap: Trap, owner: Any, name: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    effect = getattr(owner, name)

    def guarded(*args: Any, **options: Any) -> Any:
        return trap.call(lambda: effect(*args, **options), error)

    monkeypatch.setattr(owner, name, guarded)
