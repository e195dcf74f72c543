"""An SQLite table as a sink, exactly once: two-phase commit through a staging table.

Invariants: as `staging` says; all sinks of a database stage their rows in `_tidelog_pending`, as
bytes, and a transaction is named `<generation>-<attempt>-<checkpoint>` in the tables.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from tidelog.connectors import transactions
from tidelog.connectors.sql.sqlite_columns import Columns
from tidelog.connectors.sql.sqlite_database import Database
from tidelog.connectors.sql.staging import Staged, StagingTables, StagingWriter
from tidelog.connectors.transactions import Start, TransactionId, sink_name
from tidelog.runtime.sink import Sink, SinkContext

_OF_TX: Final = "WHERE sink = ? AND subtask = ? AND tx = ?"
_REMOVE: Final = f"DELETE FROM _tidelog_pending {_OF_TX}"


class Sqlite(Sink):
    """Inserts records into a table of an SQLite database.

    `columns` maps names to declared types; the table is created when absent, and must have just
    these columns otherwise. Rows with field names and dicts are taken by name, tuples by
    position. Rows are held in memory between checkpoints; a NaN becomes NULL, as SQLite has
    none. Raises ConfigError.
    """

    def __init__(self, path: Path | str, table: str, columns: Mapping[str, str]) -> None:
        self._path = Path(path).absolute()
        self._columns = Columns(table, columns)

    def open(self, context: SinkContext) -> StagingWriter:
        """Raises ConfigError for a table with other columns, and as `Database.transaction`."""
        return StagingWriter(_SqliteTables(self._path, self._columns, context), context)


_TX: Final = r"^[0-9]{1,19}-.*-[0-9]{1,19}$"


class _StoredTransaction(msgspec.Struct, frozen=True, array_like=True):
    """A pre-committed transaction as checkpoints keep it."""

    sink: str
    subtask: int
    tx: Annotated[str, msgspec.Meta(pattern=_TX)]
    rows: int
    into: str


class _SqliteTables(StagingTables):
    """The target, and the tables for all sinks of the database; see `sqlite_database`."""

    def __init__(self, path: Path, columns: Columns, context: SinkContext) -> None:
        super().__init__(sink_name(context, columns.table), columns.insert_statement())
        self._columns = columns
        self._database = Database(path, columns)

    def transaction(self) -> AbstractContextManager[sqlite3.Connection]:
        return self._database.transaction()

    def row(self, record: Any) -> bytes:
        return self._columns.encode(record)

    def stage(self, connection: Any, tx: TransactionId, rows: Sequence[Any]) -> None:
        connection.executemany(
            "INSERT INTO _tidelog_pending VALUES (?, ?, ?, ?, ?)",
            ((*_key(tx), seq, row) for seq, row in enumerate(rows)),
        )

    def move(self, connection: Any, tx: TransactionId) -> int:
        select = f"SELECT row FROM _tidelog_pending {_OF_TX} ORDER BY seq"
        rows = [self._columns.decode(row) for (row,) in connection.execute(select, _key(tx))]
        connection.executemany(self.into, rows)
        self.remove(connection, tx)
        return len(rows)

    def record(self, connection: Any, tx: TransactionId) -> None:
        self.forget(connection, tx.start)
        connection.execute("INSERT INTO _tidelog_committed VALUES (?, ?, ?)", _key(tx))

    def committed_upto(self, connection: Any, start: Start) -> int | None:
        recorded = sorted(self._committed(connection, start))
        if len(recorded) > 1:  # by an older release, which recorded every commit
            self.record(connection, recorded[-1])
        return recorded[-1].checkpoint if recorded else None

    def staged(self, connection: Any) -> list[TransactionId]:
        select = "SELECT DISTINCT sink, subtask, tx FROM _tidelog_pending WHERE sink = ?"
        return [_transaction_id(*row) for row in connection.execute(select, (self.sink,))]

    def remove(self, connection: Any, tx: TransactionId) -> None:
        connection.execute(_REMOVE, _key(tx))

    def committed(self, connection: Any) -> set[Start]:
        select = "SELECT sink, subtask, tx FROM _tidelog_committed WHERE sink = ?"
        return {_transaction_id(*row).start for row in connection.execute(select, (self.sink,))}

    def forget(self, connection: Any, start: Start) -> None:
        found = [_key(tx) for tx in self._committed(connection, start)]
        connection.executemany(f"DELETE FROM _tidelog_committed {_OF_TX}", found)

    def close(self) -> None:
        self._database.close()

    def encode(self, staged: Staged) -> bytes:
        return transactions.encode(_StoredTransaction(*_key(staged.tx), staged.rows, staged.into))

    def decode(self, transaction: bytes) -> Staged:
        return stored_transaction(self.sink, transaction)

    def ids(self, kept: Iterable[bytes]) -> set[TransactionId]:
        stored = transactions.those_of(_StoredTransaction, kept)
        return {_transaction_id(each.sink, each.subtask, each.tx) for each in stored}

    @staticmethod
    def _committed(connection: Any, start: Start) -> Iterator[TransactionId]:
        select = "SELECT sink, subtask, tx FROM _tidelog_committed WHERE sink = ? AND subtask = ?"
        found = connection.execute(select, (start.sink, start.subtask)).fetchall()
        return (tx for row in found if (tx := _transaction_id(*row)).start == start)


def stored_transaction(sink: str, transaction: bytes) -> Staged:
    """Raises RestoreError for a transaction of another kind of sink."""
    stored = transactions.decode(sink, _StoredTransaction, transaction)
    return Staged(_transaction_id(stored.sink, stored.subtask, stored.tx), stored.rows, stored.into)


def _key(tx: TransactionId) -> tuple[str, int, str]:
    return tx.sink, tx.subtask, f"{tx.generation}-{tx.attempt}-{tx.checkpoint}"


def _transaction_id(sink: str, subtask: int, tx: str) -> TransactionId:
    start, _, checkpoint = tx.rpartition("-")
    generation, _, attempt = start.partition("-")
    return TransactionId(sink, subtask, int(generation), attempt, int(checkpoint))
