"""A PostgreSQL table as a sink, exactly once: two-phase commit through a staging table.

Invariants: `pre_commit` stores rows in a staging table of the same database; one transaction moves
them to the target and records the checkpoint in `_tidelog_committed`, so a row is in one of the
two tables and none moves twice; every transaction holds the row of `_tidelog_writers` that names
our generation, so nothing of an older one happens after a newer one has begun.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from tidelog.errors import FencedError, ObjectNotFoundError
from tidelog.ids import CheckpointId
from tidelog.runtime.sink import Sink, SinkContext, SinkWriter
from tidelog.runtime.sinks import transactions
from tidelog.runtime.sinks.postgres_database import Database
from tidelog.runtime.sinks.postgres_tables import Tables
from tidelog.runtime.sinks.records import RowShape


class Postgres(Sink):
    """Inserts records into a table of a PostgreSQL database; any server from version 12 on will do.

    `conninfo` is a libpq connection string or URL; leave the password to PGPASSWORD or a password
    file. `columns` maps names to declared types; the table is created when absent, and must have
    just these columns otherwise. Rows with field names and dicts are taken by name, tuples by
    position. Rows are held in memory between checkpoints. Raises ConfigError.
    """

    def __init__(
        self, conninfo: str, table: str, columns: Mapping[str, str], *, schema: str | None = None
    ) -> None:
        self._conninfo = conninfo
        self._tables = Tables(table, columns, schema)

    def open(self, context: SinkContext) -> "PostgresWriter":
        """Raises ConfigError for a table with other columns, FencedError when a newer start of
        the job writes already, and as `Database.transaction`.
        """
        database = Database(self._conninfo, self._tables)
        try:
            return PostgresWriter(database, self._tables, context)
        except BaseException:
            database.close()
            raise


class _Key(NamedTuple):
    """The name of a transaction, in the order of the tables' columns."""

    sink: str
    subtask: int
    generation: int
    attempt: str
    checkpoint: int


class _Staged(msgspec.Struct, frozen=True, array_like=True):
    """A transaction: its name, how many rows it has in staging, and where they go."""

    key: _Key
    rows: int
    move: str


class PostgresWriter(SinkWriter):
    """Writes the rows of one subtask; raises as `Database.transaction`, and FencedError."""

    def __init__(self, database: Database, tables: Tables, context: SinkContext) -> None:
        self._database = database
        self._tables = tables
        self._context = context
        self._shape = RowShape(tables.table, tuple(tables.columns), "a value PostgreSQL takes")
        # Jobs that share a database and a sink's name differ at least in their tables.
        self._sink = f"{context.job}/{context.name}/{tables.table}"
        self._rows: list[tuple[Any, ...]] = []
        """The open transaction."""
        self._take_over()

    def recover(self, transactions: Sequence[bytes]) -> None:
        """Commit these; remove all other rows in staging of the subtasks it answers for."""
        for transaction in transactions:
            self.commit(transaction)
        with self._database.transaction() as connection:
            self._check_fence(connection)
            staged = connection.execute(self._tables.staged_by(), (self._sink,)).fetchall()
            for subtask in [s for (s,) in staged if self._context.answers_for(s)]:
                connection.execute(self._tables.remove_pending(), (self._sink, subtask))

    def write(self, records: Sequence[Any]) -> None:
        """Add rows; raises UserFunctionError for one that does not fit the columns."""
        self._rows += map(self._shape.values, records)

    def pre_commit(self, checkpoint: CheckpointId) -> bytes | None:
        """Put the rows into staging."""
        if not self._rows:
            return None
        context, tables = self._context, self._tables
        key = _Key(self._sink, context.subtask, context.generation, context.attempt, checkpoint)
        with self._database.transaction() as connection:
            self._check_fence(connection)
            with connection.cursor().copy(tables.copy()) as copy:
                for seq, row in enumerate(self._rows):
                    copy.write_row((*key, seq, *row))
        staged = _Staged(key, len(self._rows), tables.move())
        self._rows = []
        return transactions.encode(staged)

    def commit(self, transaction: bytes) -> None:
        """Move the rows to the table.

        Raises ObjectNotFoundError when staging lost them, RestoreError when they were written
        for another table or other columns.
        """
        staged = transactions.decode(self._sink, _Staged, transaction)
        tables, key = self._tables, staged.key
        with self._database.transaction() as connection:
            self._check_fence(connection)
            done = connection.execute(tables.committed_upto(), key[:-1]).fetchone()
            if done is not None and done[0] >= key.checkpoint:
                return
            if staged.move != tables.move():
                raise transactions.moved(f"transaction {staged.key}", staged.move, tables.move())
            moved = connection.execute(tables.move(), key).rowcount
            if moved != staged.rows:
                raise _lost(staged, moved)
            connection.execute(tables.record(), key)

    def close(self) -> None:
        """Close the connection; what was not pre-committed is gone."""
        self._rows = []
        self._database.close()

    def _take_over(self) -> None:
        """From here on every transaction of an older generation is refused."""
        with self._database.transaction() as connection:
            mine = (self._sink, self._context.generation)
            if connection.execute(self._tables.take_over(), mine).fetchone() is None:
                raise self._fenced()

    def _check_fence(self, connection: Any) -> None:
        found = connection.execute(self._tables.writer(), (self._sink,)).fetchone()
        if found is None or found[0] != self._context.generation:
            raise self._fenced()

    def _fenced(self) -> FencedError:
        sink = self._sink.replace("'", "''")
        return FencedError(
            f"generation {self._context.generation} of sink {self._sink!r}",
            expected="to be the newest one that writes to its table",
            found="another generation in _tidelog_writers",
            action="let the newer start of the job go on; if there is none because the job began "
            f"again in a new store, DELETE FROM {self._tables.writers} WHERE sink = '{sink}' and "
            "start it again",
            retry_safe=False,
        )


def _lost(staged: _Staged, found: int) -> ObjectNotFoundError:
    return ObjectNotFoundError(
        f"transaction {staged.key}",
        expected=f"{staged.rows} rows in staging, or its checkpoint in _tidelog_committed",
        found=f"{found} rows and no such checkpoint",
        action="bring back the database that this job wrote to",
        retry_safe=False,
    )
