"""An SQLite table as a sink, exactly once: two-phase commit through a staging table.

Invariants: as `staging` says; all sinks of a database stage their rows in `_tidelog_pending`, as
bytes, and a transaction is named `<generation>-<attempt>-<checkpoint>` in the tables; a row that
was accepted has values of kinds that SQLite stores, so nothing but a constraint of the table can
refuse it later; only errors of `tidelog.errors` leave.
"""

import logging
import os
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from tidelog.connectors import transactions
from tidelog.connectors.arguments import local_path, typed
from tidelog.connectors.records import RowShape
from tidelog.connectors.sql.sqlite_types import check_new_types, column_type
from tidelog.connectors.sql.staging import (
    SqlStagingWriter,
    StagedTransaction,
    StagingTables,
    check_columns,
    check_types,
)
from tidelog.connectors.sql.upserts import KeyColumns, quoted
from tidelog.connectors.transactions import TransactionId
from tidelog.errors import (
    AccessDeniedError,
    CorruptObjectError,
    StorageError,
    StoreFullError,
    TidelogError,
    UnavailableError,
    require,
)
from tidelog.events import Event
from tidelog.runtime.sink import Sink, SinkContext

logger = logging.getLogger(__name__)

_BUSY_TIMEOUT_S: Final = 60.0
_SWITCH_ATTEMPTS: Final = 100
_DURABLE: Final = "PRAGMA synchronous = FULL"
_TYPE: Final = re.compile(r"\w+(\(\d+(, ?\d+)?\))?")
_STAGING: Final = (
    """CREATE TABLE IF NOT EXISTS _tidelog_pending (
        sink TEXT, subtask INTEGER, tx TEXT, seq INTEGER, row BLOB NOT NULL,
        PRIMARY KEY (sink, subtask, tx, seq)
    ) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS _tidelog_committed (
        sink TEXT, subtask INTEGER, tx TEXT,
        PRIMARY KEY (sink, subtask, tx)
    ) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS _tidelog_writers (
        sink TEXT PRIMARY KEY, generation INTEGER NOT NULL, attempt TEXT NOT NULL
    ) WITHOUT ROWID""",
)

_encode_row: Final = msgspec.msgpack.Encoder().encode
_decode_row: Final = msgspec.msgpack.Decoder(tuple[Any, ...]).decode


class SqliteSink(Sink):
    """Inserts records into a table of an SQLite database.

    `columns` maps names to declared types; the table is created when absent, and must have just
    these columns otherwise. With `key`, names of some of them, a record replaces the row of its
    key, and removes it when all its other columns are None. Rows with field names and dicts are
    taken by name, tuples by position. Rows are held in memory between checkpoints; a NaN becomes
    NULL, as SQLite has none. Raises ConfigError.
    """

    @typed
    def __init__(
        self, path: Path | str, table: str, columns: Mapping[str, str], *, key: Sequence[str] = ()
    ) -> None:
        check_types(table, columns, _TYPE, "TEXT, INTEGER, REAL or BLOB")
        what = "path of the database"
        require(what, repr(path), str(path) != ":memory:", "a file: memory does not outlive a kill")
        self._path = self.example_file = local_path(what, path)
        self._table = table
        self._columns = {name: kind.upper() for name, kind in columns.items()}
        self._key = KeyColumns(columns, key)

    def open(self, context: SinkContext) -> SqlStagingWriter:
        """Raises ConfigError for a table with other columns or no unique key, FencedError when a
        newer start of the job writes already, and as `SqliteDatabase.transaction`.
        """
        database = SqliteDatabase(self._path)
        try:
            database.prepare(self._table, self._columns, self._key)
            tables = _SqliteTables(database, self._table, self._columns, self._key, context)
            return SqlStagingWriter(tables, context)
        except BaseException:
            database.close()
            raise


_TX: Final = r"^[0-9]{1,19}-.*-[0-9]{1,19}$"


class _StoredTransaction(msgspec.Struct, frozen=True, array_like=True):
    """A pre-committed transaction as checkpoints keep it."""

    sink: str
    subtask: int
    tx: Annotated[str, msgspec.Meta(pattern=_TX)]
    rows: int
    into: str

    @property
    def id(self) -> TransactionId:
        return _transaction_id(self.sink, self.subtask, self.tx)


class _SqliteTables(StagingTables):
    marks = "?????"
    committed_columns = pending_columns = ("sink", "subtask", "tx")

    def __init__(
        self,
        database: "SqliteDatabase",
        table: str,
        columns: Mapping[str, str],
        key: KeyColumns,
        context: SinkContext,
    ) -> None:
        names = ", ".join(map(quoted, columns))
        marks = ", ".join("?" * len(columns))
        super().__init__(
            context,
            table,
            f"INSERT INTO {quoted(table)} ({names}) VALUES ({marks}){key.on_conflict()}",
            pending="_tidelog_pending",
            committed="_tidelog_committed",
            writers="_tidelog_writers",
        )
        shape = RowShape(table, tuple(columns), "None, int, float, str or bytes")
        kinds = {name: column_type(kind) for name, kind in columns.items()}
        self._rows = key.rows(shape, kinds)
        self._changes = _RowChanges(table, tuple(columns), key, self.into) if key else None
        self._database = database
        self.take_over()

    def connected(self) -> AbstractContextManager[sqlite3.Connection]:
        return self._database.transaction()

    def close(self) -> None:
        self._database.close()

    def row(self, record: Any) -> bytes:
        return _encode_row(self._rows.values(record))

    def stage(self, connection: Any, tx: TransactionId, rows: Sequence[Any]) -> None:
        connection.executemany(
            "INSERT INTO _tidelog_pending VALUES (?, ?, ?, ?, ?)",
            ((*self.key(tx), seq, row) for seq, row in enumerate(rows)),
        )

    def move(self, connection: Any, tx: TransactionId) -> int:
        where = self.where(self.pending_columns)
        select = f"SELECT row FROM _tidelog_pending WHERE {where} ORDER BY seq"
        rows = [_decode_row(row) for (row,) in connection.execute(select, self.key(tx))]
        if self._changes is None:
            connection.executemany(self.into, rows)
        else:
            self._changes.apply(connection, rows)
        self.remove(connection, tx)
        return len(rows)

    def key(self, tx: TransactionId) -> tuple[str, int, str]:
        return tx.sink, tx.subtask, f"{tx.generation}-{tx.attempt}-{tx.checkpoint}"

    def named(self, key: Sequence[Any]) -> TransactionId:
        return _transaction_id(*key)

    def encode(self, staged: StagedTransaction) -> bytes:
        entry = _StoredTransaction(*self.key(staged.tx), staged.rows, staged.into)
        return transactions.encode(entry)

    def decode(self, transaction: bytes) -> StagedTransaction:
        return stored_transaction(self.sink, transaction)

    def ids(self, tokens: Iterable[bytes]) -> set[TransactionId]:
        return {entry.id for entry in transactions.those_of(_StoredTransaction, tokens)}


class _RowChanges:
    """Rows in the order they were written, as changes of a table that has a key: what Python takes
    for two keys may be one by a collation of the table, so none is left out.
    """

    def __init__(self, table: str, columns: Sequence[str], key: KeyColumns, upsert: str) -> None:
        names = " AND ".join(f"{quoted(name)} = ?" for name in key.names)
        self._upsert = upsert
        self._delete = f"DELETE FROM {quoted(table)} WHERE {names}"
        self._values = [columns.index(name) for name in key.values]
        self._key = [columns.index(name) for name in key.names]

    def apply(self, connection: sqlite3.Connection, rows: Iterable[tuple[Any, ...]]) -> None:
        for removes, run in groupby(rows, self._removes):
            if removes:
                connection.executemany(self._delete, map(self._key_values, run))
            else:
                connection.executemany(self._upsert, run)

    def _key_values(self, row: tuple[Any, ...]) -> list[Any]:
        return [row[index] for index in self._key]

    def _removes(self, row: tuple[Any, ...]) -> bool:
        return bool(self._values) and all(row[index] is None for index in self._values)


def stored_transaction(sink: str, transaction: bytes) -> StagedTransaction:
    """Raises RestoreError for a transaction of another kind of sink."""
    entry = transactions.decode(sink, _StoredTransaction, transaction)
    return StagedTransaction(entry.id, entry.rows, entry.into)


def _transaction_id(sink: str, subtask: int, tx: str) -> TransactionId:
    start, _, checkpoint = tx.rpartition("-")
    generation, _, attempt = start.partition("-")
    return TransactionId(sink, subtask, int(generation), attempt, int(checkpoint))


class SqliteDatabase:
    """An open database, used by one thread at a time.

    Transactions take the write lock first, so that none fails half-way for another subtask's lock;
    one that returned survives a crash of the machine. Raises as `transaction`.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stuck = False
        """A transaction could not be rolled back: the connection is of no more use."""
        with self._failures():
            self._connection = self._connect()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All or nothing; waits up to a minute for the write lock.

        Raises StoreFullError, AccessDeniedError, CorruptObjectError and StorageError.
        """
        with self._failures():
            if self._stuck:
                self._connection.close()
                self._connection = self._connect()
                self._connection.execute(_DURABLE)
                self._stuck = False
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                yield self._connection
                self._connection.execute("COMMIT")
                self._check_there()
            finally:
                self._roll_back()

    def prepare(self, table: str, columns: Mapping[str, str], key: KeyColumns) -> None:
        """Create what is absent; raises ConfigError when the table has other columns or would get
        types that SQLite does not know, or the key is not unique.
        """
        with self._failures():
            self._write_ahead()
            self._connection.execute(_DURABLE)
        declared = ", ".join(f"{quoted(name)} {kind}" for name, kind in columns.items())
        create = f"CREATE TABLE IF NOT EXISTS {quoted(table)} ({declared}{key.constraint})"
        if key:  # with a rowid, a key of type INTEGER would take integers alone
            create += " WITHOUT ROWID"
        with self.transaction() as connection:
            if not connection.execute(f"PRAGMA table_info({quoted(table)})").fetchall():
                check_new_types(table, columns)
            for statement in (*_STAGING, create):
                connection.execute(statement)
            info = connection.execute(f"PRAGMA table_info({quoted(table)})").fetchall()
            unique = _unique_columns(connection, table)
        types = {name: kind.upper() for _, name, kind, *_ in info}
        what = f"table {table!r} in {self._path}"
        check_columns(what, columns, types)
        key.check_unique(what, quoted(table), unique)

    def close(self) -> None:
        """Close the connection; rolls back what is open."""
        self._connection.close()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._path, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
        )
        self._identity = self._path.stat()
        return connection

    def _check_there(self) -> None:
        # SQLite goes on in a file that was removed or renamed, where nobody would find the rows.
        try:
            if os.path.samestat(self._path.stat(), self._identity):
                return
            actual = "another one under its name"
        except (FileNotFoundError, NotADirectoryError):
            actual = "nothing"
        raise StorageError(
            f"database {self._path}",
            expected="the file that was opened",
            found=actual,
            action="bring it back, with the file -wal that was beside it, and start the job again; "
            "move or replace it only while no job writes to it",
            retry_safe=False,
        )

    def _roll_back(self) -> None:
        # An error at hand says more than that of the rollback; the connection is replaced instead.
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            Event.ROLLBACK_FAILED.log(logger, database=self._path, error=error)
            self._stuck = True

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
            # The low byte is the primary result code, the rest says more.
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
            unknown = StorageError, "see the cause; it is not one tidelog knows"
            kind, action = _ACTIONS.get(code, unknown)
            found = "a directory" if Path(self._path).is_dir() else str(error)
            what, expected = f"database {self._path}", "a file of SQLite that can be written"
            raise kind(what, expected=expected, found=found, action=action) from error


def _unique_columns(connection: sqlite3.Connection, table: str) -> list[list[str]]:
    """The columns of each primary key and unique index that holds for all rows."""
    primary = "SELECT name FROM pragma_table_info(?) WHERE pk > 0"
    indexes = 'SELECT name FROM pragma_index_list(?) WHERE "unique" AND NOT partial'
    columns = "SELECT name FROM pragma_index_info(?)"  # an expression has none
    searches = [(primary, table)]
    for (index,) in connection.execute(indexes, (table,)):
        searches.append((columns, index))
    keys: list[list[str]] = []
    for sql, of in searches:
        keys.append([name for (name,) in connection.execute(sql, (of,))])
    return keys


_RELAX: Final = "relax the constraint or remove the rows in its way; the new ones wait in staging"
_ACTIONS: Final[dict[int, tuple[type[TidelogError], str]]] = {
    sqlite3.SQLITE_FULL: (StoreFullError, "free or add space, then continue"),
    sqlite3.SQLITE_CANTOPEN: (UnavailableError, "create its directory, or check its permissions"),
    sqlite3.SQLITE_READONLY: (AccessDeniedError, "make the file and its directory writable"),
    sqlite3.SQLITE_PERM: (AccessDeniedError, "make the file and its directory writable"),
    sqlite3.SQLITE_NOTADB: (CorruptObjectError, "pass the path of an SQLite database"),
    sqlite3.SQLITE_CORRUPT: (CorruptObjectError, "bring back a backup of the database"),
    sqlite3.SQLITE_BUSY: (StorageError, "end the program that keeps the database locked"),
    sqlite3.SQLITE_CONSTRAINT: (StorageError, _RELAX),
    sqlite3.SQLITE_MISMATCH: (StorageError, _RELAX),
}
