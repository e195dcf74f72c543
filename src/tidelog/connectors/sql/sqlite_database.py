"""A connection to the database of an SQLite sink.

Invariants: changes happen in transactions that take the write lock first, so that none fails
half-way for another subtask's lock; a transaction that returned survives a crash of the machine;
only errors of `tidelog.errors` leave.
"""

import logging
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tidelog.connectors.sql.records import quoted
from tidelog.connectors.sql.sqlite_columns import Columns
from tidelog.errors import (
    AccessDeniedError,
    ConfigError,
    CorruptObjectError,
    StorageError,
    StoreFullError,
    TidelogError,
)
from tidelog.events import Event

logger = logging.getLogger(__name__)

_BUSY_TIMEOUT_S: Final = 60.0
_SWITCH_ATTEMPTS: Final = 100

_STAGING: Final = (
    """CREATE TABLE IF NOT EXISTS _tidelog_pending (
        sink TEXT, subtask INTEGER, tx TEXT, seq INTEGER, row BLOB NOT NULL,
        PRIMARY KEY (sink, subtask, tx, seq)
    ) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS _tidelog_committed (
        sink TEXT, subtask INTEGER, tx TEXT,
        PRIMARY KEY (sink, subtask, tx)
    ) WITHOUT ROWID""",
)


class Database:
    """An open database with the target and staging tables in it.

    Used by one thread at a time. Raises ConfigError when the target table has other columns,
    else as `transaction`.
    """

    def __init__(self, path: Path, columns: Columns) -> None:
        self._path = path
        self._stuck = False
        """A transaction could not be rolled back: the connection is of no more use."""
        with self._failures():
            self._connection = self._connect()
        try:
            self._prepare(columns)
        except BaseException:
            self.close()
            raise

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All or nothing; waits up to a minute for the write lock.

        Raises StoreFullError, AccessDeniedError, CorruptObjectError and StorageError.
        """
        with self._failures():
            if self._stuck:
                self._reconnect()
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                yield self._connection
                self._connection.execute("COMMIT")
            finally:
                self._roll_back()

    def close(self) -> None:
        """Close the connection; rolls back what is open."""
        self._connection.close()

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(
            self._path, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
        )

    def _reconnect(self) -> None:
        self._connection.close()
        self._connection = self._connect()
        self._synchronize()
        self._stuck = False

    def _roll_back(self) -> None:
        # An error at hand says more than that of the rollback; the connection is replaced instead.
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            Event.ROLLBACK_FAILED.log(logger, database=self._path, error=error)
            self._stuck = True

    def _synchronize(self) -> None:
        self._connection.execute("PRAGMA synchronous = FULL")

    def _prepare(self, columns: Columns) -> None:
        with self._failures():
            self._write_ahead()
            self._synchronize()
        with self.transaction() as connection:
            for statement in (*_STAGING, columns.create_statement()):
                connection.execute(statement)
            info = connection.execute(f"PRAGMA table_info({quoted(columns.table)})").fetchall()
        found = {name: kind.upper() for _, name, kind, *_ in info}
        if found != columns.types:
            raise ConfigError(
                f"table {columns.table!r} in {self._path}",
                expected=f"the columns {columns.types}",
                found=str(found),
                action="pass the columns the table has, or another table",
            )

    def _write_ahead(self) -> None:
        # Readers of the table do not block the sink then, nor it them. Two connections that switch
        # a new database at once would wait for each other, so SQLite fails one without waiting;
        # the write lock it waits for is free when the other has switched.
        for _ in range(_SWITCH_ATTEMPTS):
            try:
                self._connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                    raise
            with self.transaction():
                pass
        self._connection.execute("PRAGMA journal_mode = WAL")

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise _translated(error, f"database {self._path}") from error


def _translated(error: sqlite3.Error, what: str) -> TidelogError:
    # The low byte is the primary result code, the rest says more.
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    kind, action = _ACTIONS.get(code, (StorageError, "see the cause; it is not one tidelog knows"))
    return kind(what, found=str(error), action=action)


_ACTIONS: Final[dict[int, tuple[type[TidelogError], str]]] = {
    sqlite3.SQLITE_FULL: (StoreFullError, "free or add space, then continue"),
    sqlite3.SQLITE_CANTOPEN: (ConfigError, "create its directory, or check its permissions"),
    sqlite3.SQLITE_READONLY: (AccessDeniedError, "make the file and its directory writable"),
    sqlite3.SQLITE_PERM: (AccessDeniedError, "make the file and its directory writable"),
    sqlite3.SQLITE_NOTADB: (CorruptObjectError, "pass the path of an SQLite database"),
    sqlite3.SQLITE_CORRUPT: (CorruptObjectError, "bring back a backup of the database"),
    sqlite3.SQLITE_BUSY: (StorageError, "end the program that keeps the database locked"),
    sqlite3.SQLITE_CONSTRAINT: (
        StorageError,
        "relax the constraint or remove the rows in its way; the new ones wait in staging",
    ),
}
