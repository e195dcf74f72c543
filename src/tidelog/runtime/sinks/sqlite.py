"""An SQLite table as a sink, exactly once: two-phase commit through a staging table.

Invariants: `pre_commit` stores rows in `_tidelog_pending` of the same database; one SQLite
transaction moves them to the target, removes them there and records this in
`_tidelog_committed`; so a row is in one of the two tables, and no transaction moves twice.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from tidelog.errors import ObjectNotFoundError
from tidelog.ids import CheckpointId
from tidelog.runtime.sink import Sink, SinkContext, SinkWriter
from tidelog.runtime.sinks import transactions
from tidelog.runtime.sinks.sqlite_columns import Columns
from tidelog.runtime.sinks.sqlite_database import Database

_OF_TX: Final = "WHERE sink = ? AND subtask = ? AND tx = ?"


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

    def open(self, context: SinkContext) -> "SqliteWriter":
        """Raises ConfigError for a table with other columns, and as `Database.transaction`."""
        return SqliteWriter(Database(self._path, self._columns), self._columns, context)


class _Staged(msgspec.Struct, frozen=True, array_like=True):
    """A transaction: where its rows are in the staging table, how many, and where they go."""

    sink: str
    subtask: int
    tx: str
    rows: int
    insert: str


class SqliteWriter(SinkWriter):
    """Writes the rows of one subtask; raises as `Database.transaction`."""

    def __init__(self, database: Database, columns: Columns, context: SinkContext) -> None:
        self._database = database
        self._columns = columns
        self._insert = columns.insert_statement()
        self._context = context
        # Jobs that share a database and a sink's name differ at least in their tables.
        self._sink = f"{context.job}/{context.name}/{columns.table}"
        self._rows: list[bytes] = []
        """The open transaction."""

    def recover(self, transactions: Sequence[bytes]) -> None:
        """Commit these; remove all other rows in staging of the subtasks it answers for."""
        for transaction in transactions:
            self.commit(transaction)
        with self._database.transaction() as connection:
            subtasks = connection.execute(
                "SELECT DISTINCT subtask FROM _tidelog_pending WHERE sink = ?", (self._sink,)
            ).fetchall()
            connection.executemany(
                "DELETE FROM _tidelog_pending WHERE sink = ? AND subtask = ?",
                [(self._sink, s) for (s,) in subtasks if self._context.answers_for(s)],
            )

    def write(self, records: Sequence[Any]) -> None:
        """Add rows; raises UserFunctionError for one that does not fit the columns."""
        self._rows += map(self._columns.encode, records)

    def pre_commit(self, checkpoint: CheckpointId) -> bytes | None:
        """Put the rows into staging."""
        if not self._rows:
            return None
        context = self._context
        tx = f"{context.generation}-{context.attempt}-{checkpoint}"
        staged = _Staged(self._sink, context.subtask, tx, len(self._rows), self._insert)
        with self._database.transaction() as connection:
            connection.executemany(
                "INSERT INTO _tidelog_pending VALUES (?, ?, ?, ?, ?)",
                (
                    (staged.sink, staged.subtask, staged.tx, seq, row)
                    for seq, row in enumerate(self._rows)
                ),
            )
        self._rows = []
        return transactions.encode(staged)

    def commit(self, transaction: bytes) -> None:
        """Move the rows to the table.

        Raises ObjectNotFoundError when staging lost them, RestoreError when they were written
        for another table or other columns.
        """
        staged = transactions.decode(self._sink, _Staged, transaction)
        key = (staged.sink, staged.subtask, staged.tx)
        with self._database.transaction() as connection:
            if connection.execute(f"SELECT 1 FROM _tidelog_committed {_OF_TX}", key).fetchone():
                return
            if staged.insert != self._insert:
                raise transactions.moved(
                    f"transaction {staged.tx} of sink {staged.sink!r}, subtask {staged.subtask}",
                    staged.insert,
                    self._insert,
                )
            select = f"SELECT row FROM _tidelog_pending {_OF_TX} ORDER BY seq"
            rows = [self._columns.decode(row) for (row,) in connection.execute(select, key)]
            if len(rows) != staged.rows:
                raise _lost(staged, len(rows))
            connection.executemany(self._insert, rows)
            connection.execute(f"DELETE FROM _tidelog_pending {_OF_TX}", key)
            connection.execute("INSERT INTO _tidelog_committed VALUES (?, ?, ?)", key)

    def close(self) -> None:
        """Close the connection; what was not pre-committed is gone."""
        self._rows = []
        self._database.close()


def _lost(staged: _Staged, found: int) -> ObjectNotFoundError:
    return ObjectNotFoundError(
        f"transaction {staged.tx} of sink {staged.sink!r}, subtask {staged.subtask}",
        expected=f"{staged.rows} rows in _tidelog_pending, or its name in _tidelog_committed",
        found=f"{found} rows and no such name",
        action="bring back the database file that this job wrote to",
        retry_safe=False,
    )
