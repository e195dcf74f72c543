"""What simulated jobs write to: a transactional system outside, or tidelog's own sinks on disk.

Invariants: what a dead process calls has no effect; a disk that fails does so within `pre_commit`,
as a full one does; what is visible is read back without tidelog.
"""

import errno
import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random
from typing import Any, Protocol

from tests.simulator.jobs.external_sink import CommitWatcher, ExternalSink, ExternalSystem
from tests.simulator.machine.process import Process
from tidelog.connectors.files.sink import Files
from tidelog.connectors.sql import Sqlite
from tidelog.ids import CheckpointId
from tidelog.runtime.sink import Sink, SinkContext, SinkWriter

_TABLE = "records"


class Output(Protocol):
    """Where one sink of a job writes, as the world sees it."""

    def sink(self, process: Process, fails: float) -> Sink:
        """The sink as one process reaches it; a share of its calls fails."""
        ...

    def visible(self) -> Counter[str] | None:
        """The records that a reader sees, as text; None when every commit was watched."""
        ...


class ExternalOutput:
    """The simulated transactional system."""

    def __init__(self, name: str, watcher: CommitWatcher) -> None:
        self._outside = ExternalSystem(name, watcher)

    def sink(self, process: Process, fails: float) -> Sink:
        return ExternalSink(self._outside, process, fails, process.rng)

    def visible(self) -> None:
        return None


class FilesOutput:
    """tidelog's file sink; parts are cut so often that a transaction has several."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def sink(self, process: Process, fails: float) -> Sink:
        files = Files(self._directory, format=repr, max_part_bytes=200)
        return _OfProcess(files, process, fails, lambda record: record)

    def visible(self) -> Counter[str]:
        parts = self._directory.glob("part-*")
        return Counter(line for part in parts for line in part.read_text().splitlines())


class SqliteOutput:
    """tidelog's SQLite sink."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def sink(self, process: Process, fails: float) -> Sink:
        self._directory.mkdir(parents=True, exist_ok=True)
        sqlite = Sqlite(self._path, _TABLE, {"record": "TEXT"})
        return _OfProcess(sqlite, process, fails, lambda record: (repr(record),))

    def visible(self) -> Counter[str]:
        if not self._path.exists():
            return Counter()
        with closing(sqlite3.connect(self._path)) as connection:
            return Counter(text for (text,) in connection.execute(f"SELECT record FROM {_TABLE}"))

    @property
    def _path(self) -> Path:
        return self._directory / "output.db"


def make_output(rng: Random, name: str, directory: Path, watcher: CommitWatcher) -> Output:
    """A random kind of output."""
    kind = rng.choice(("outside", "files", "files", "sqlite"))
    if kind == "files":
        return FilesOutput(directory / name)
    if kind == "sqlite":
        return SqliteOutput(directory / name)
    return ExternalOutput(name, watcher)


class _OfProcess(Sink):
    """A sink on disk as one process reaches it."""

    def __init__(
        self, sink: Sink, process: Process, fails: float, form: Callable[[Any], Any]
    ) -> None:
        self.sink = sink
        self.process = process
        self.fails = fails
        self.form = form

    def open(self, context: SinkContext) -> SinkWriter:
        self.process.check_alive()
        return _Writer(self, self.sink.open(context))


class _Writer(SinkWriter):
    def __init__(self, owner: _OfProcess, inner: SinkWriter) -> None:
        self._owner = owner
        self._inner = inner

    def recover(self, transactions: Sequence[bytes]) -> None:
        self._owner.process.check_alive()
        self._inner.recover(transactions)

    def write(self, records: Sequence[Any]) -> None:
        self._owner.process.check_alive()
        self._inner.write(list(map(self._owner.form, records)))

    def pre_commit(self, checkpoint: CheckpointId) -> bytes | None:
        self._owner.process.check_alive()
        rng, fails = self._owner.process.rng, self._owner.fails
        with _disk(lambda: fails > 0 and rng.random() < fails):
            return self._inner.pre_commit(checkpoint)

    def commit(self, transaction: bytes) -> None:
        self._owner.process.check_alive()
        self._inner.commit(transaction)

    def close(self) -> None:
        if self._owner.process.dead:
            # A killed process tidies nothing up; its handles are given back without a word.
            self._abandon()
        else:
            self._inner.close()

    def _abandon(self) -> None:
        for part in getattr(self._inner, "_parts", ()):
            part._close()
        database = getattr(self._inner, "_database", None)
        if database is not None:
            database.close()


@contextmanager
def _disk(fails: Callable[[], bool]) -> Iterator[None]:
    """Syncs within fail as `fails` says, and take no time."""

    def sync(descriptor: int) -> None:
        if fails():
            raise OSError(errno.EIO, "the disk fails (simulated)")

    real = os.fsync
    os.fsync = sync  # type: ignore[assignment]
    try:
        yield
    finally:
        os.fsync = real
