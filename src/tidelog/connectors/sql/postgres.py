"""A PostgreSQL table as a sink, exactly once: two-phase commit through a staging table.

Invariants: as `staging` says; every transaction holds the row of `_tidelog_writers` that names our
generation, so nothing of an older one happens after a newer one has begun.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tidelog.connectors.sql.postgres_database import Database
from tidelog.connectors.sql.postgres_tables import Tables
from tidelog.connectors.sql.records import RowShape
from tidelog.connectors.sql.staging import StagingTables, StagingWriter
from tidelog.connectors.transactions import Start, TransactionId, sink_name
from tidelog.errors import FencedError
from tidelog.runtime.sink import Sink, SinkContext


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

    def open(self, context: SinkContext) -> StagingWriter:
        """Raises ConfigError for a table with other columns, FencedError when a newer start of
        the job writes already, and as `Database.transaction`.
        """
        database = Database(self._conninfo, self._tables)
        try:
            return StagingWriter(_PostgresTables(database, self._tables, context), context)
        except BaseException:
            database.close()
            raise


class _PostgresTables(StagingTables):
    """The target, a staging table with its columns, and the tables for all sinks of the schema.

    The constructor and `transaction` raise FencedError when a newer start of the job writes.
    """

    def __init__(self, database: Database, tables: Tables, context: SinkContext) -> None:
        super().__init__(sink_name(context, tables.table), tables.move())
        self._database = database
        self._tables = tables
        self._shape = RowShape(tables.table, tuple(tables.columns), "a value PostgreSQL takes")
        self._generation = context.generation
        with database.transaction() as connection:
            mine = (self.sink, self._generation)
            if connection.execute(tables.take_over(), mine).fetchone() is None:
                raise self._fenced()

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        with self._database.transaction() as connection:
            found = connection.execute(self._tables.writer(), (self.sink,)).fetchone()
            if found is None or found[0] != self._generation:
                raise self._fenced()
            yield connection

    def row(self, record: Any) -> tuple[Any, ...]:
        return self._shape.values(record)

    def stage(self, connection: Any, tx: TransactionId, rows: Sequence[Any]) -> None:
        with connection.cursor().copy(self._tables.copy()) as copy:
            for seq, row in enumerate(rows):
                copy.write_row((*tx, seq, *row))

    def move(self, connection: Any, tx: TransactionId) -> int:
        moved: int = connection.execute(self.into, tx).rowcount
        return moved

    def record(self, connection: Any, tx: TransactionId) -> None:
        connection.execute(self._tables.record(), tx)

    def committed_upto(self, connection: Any, start: Start) -> int | None:
        found = connection.execute(self._tables.committed_upto(), start).fetchone()
        return None if found is None else found[0]

    def staged(self, connection: Any) -> list[TransactionId]:
        found = connection.execute(self._tables.staged_by(), (self.sink,)).fetchall()
        return [TransactionId(*row) for row in found]

    def remove(self, connection: Any, tx: TransactionId) -> None:
        connection.execute(self._tables.remove_pending(), tx)

    def committed(self, connection: Any) -> list[Start]:
        found = connection.execute(self._tables.committed_by(), (self.sink,)).fetchall()
        return [Start(*row) for row in found]

    def forget(self, connection: Any, start: Start) -> None:
        connection.execute(self._tables.forget(), start)

    def close(self) -> None:
        self._database.close()

    def _fenced(self) -> FencedError:
        sink = self.sink.replace("'", "''")
        return FencedError(
            f"generation {self._generation} of sink {self.sink!r}",
            expected="to be the newest one that writes to its table",
            found="another generation in _tidelog_writers",
            action="let the newer start of the job go on; if there is none because the job began "
            f"again in a new store, DELETE FROM {self._tables.writers} WHERE sink = '{sink}' and "
            "start it again",
            retry_safe=False,
        )
