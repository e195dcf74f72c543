"""A PostgreSQL table as a sink, exactly once: two-phase commit through a staging table.

Invariants: as `staging` says; every transaction holds the row of `_tidelog_writers`; staging has
the declared columns of the target, so a value that does not fit is refused when it is staged and
never when it is moved; all names are quoted.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

from tidelog.connectors.arguments import typed
from tidelog.connectors.outside import ANSWER_S
from tidelog.connectors.records import RowShape
from tidelog.connectors.sql.postgres_connection import (
    PostgresConnection,
    check_conninfo,
    columns_of,
    unique_columns_of,
)
from tidelog.connectors.sql.postgres_types import column_type
from tidelog.connectors.sql.staging import (
    SqlStagingWriter,
    StagingTables,
    check_columns,
    check_types,
)
from tidelog.connectors.sql.upserts import KeyColumns, quoted
from tidelog.connectors.transactions import TransactionId
from tidelog.errors import ConfigError, require
from tidelog.ids import digest
from tidelog.runtime.sink import Sink, SinkContext

_TYPE: Final = re.compile(
    r"(double precision|(character|bit) varying|\w+(\.\w+)?)"
    r"(\(\w+(, ?-?\d+)?\))?( with(out)? time zone)?(\[\])?",
    re.IGNORECASE,
)
_ROWS_OF_AN_ANSWER: Final = 1000
_CREATE_LOCK: Final = 0x7469_6465_6C6F_6701
"""One creator of tables at a time: PostgreSQL lets two that race fail."""


class PostgresSink(Sink):
    """Inserts records into a table of a PostgreSQL database; any server from version 12 on will do.

    `conninfo` is a libpq connection string or URL; leave the password to PGPASSWORD or a password
    file. `columns` maps names to declared types; the table is created when absent, and must have
    just these columns otherwise. With `key`, names of some of them, a record replaces the row of
    its key, and removes it when all its other columns are None. Rows with field names and dicts are
    taken by name, tuples by position. Rows are held in memory between checkpoints. The server may
    take `answer_s` for a statement. Raises ConfigError.
    """

    @typed
    def __init__(
        self,
        conninfo: str,
        table: str,
        columns: Mapping[str, str],
        *,
        key: Sequence[str] = (),
        schema: str | None = None,
        answer_s: float = ANSWER_S,
    ) -> None:
        check_conninfo(conninfo, "a PostgreSQL sink")
        require("answer_s", answer_s, answer_s > 0, "more than 0 seconds")
        self._answer_s = answer_s
        self._conninfo = conninfo
        self._names = TableNames(table, columns, schema, key)

    def open(self, context: SinkContext) -> SqlStagingWriter:
        """Raises ConfigError when the driver is missing or a table has other columns or no unique
        key, FencedError when a newer start of the job writes already, and as
        `PostgresConnection.transaction`.
        """
        server = PostgresConnection(
            self._conninfo,
            "a PostgreSQL sink",
            "grant the user CREATE on the schema, TEMP on the database and access to the table",
            answer_s=self._answer_s,
        )
        try:
            types = self._names.prepare(server)
            return SqlStagingWriter(_PostgresTables(server, self._names, types, context), context)
        except BaseException:
            server.close()
            raise


class TableNames:
    """The target, its staging table, and the tables for all sinks of the schema.

    Raises ConfigError when there are no columns, a type is not one, or the key no columns.
    """

    def __init__(
        self,
        table: str,
        columns: Mapping[str, str],
        schema: str | None = None,
        key: Sequence[str] = (),
    ) -> None:
        check_types(table, columns, _TYPE, "text, bigint or timestamptz")
        self.table = table
        self.columns = tuple(columns)
        self.key = KeyColumns(columns, key)
        self.declared = ", ".join(f"{quoted(name)} {kind}" for name, kind in columns.items())
        self.quoted_columns = ", ".join(map(quoted, columns))
        prefix = "" if schema is None else quoted(schema) + "."
        self.target = prefix + quoted(table)
        # A name of our own, and short: PostgreSQL cuts names at 63 bytes without a word.
        self.pending = prefix + quoted(f"_tidelog_pending_{digest(table)}")
        self.committed = prefix + quoted("_tidelog_committed")
        self.writers = prefix + quoted("_tidelog_writers")

    def prepare(self, server: PostgresConnection) -> dict[str, str]:
        """Create what is absent; returns the types of the columns as PostgreSQL names them.

        Raises ConfigError when there are other columns, or the key is not unique.
        """
        with server.transaction() as connection:
            connection.execute("SET LOCAL client_min_messages = warning")
            connection.execute("SELECT pg_advisory_xact_lock($1)", (_CREATE_LOCK,))
            if not columns_of(connection, self.target):
                self._check_new()
                # Only then: it would be made in the first schema of the search path.
                declared_key = self.declared + self.key.constraint
                connection.execute(f"CREATE TABLE IF NOT EXISTS {self.target} ({declared_key})")
            for statement in self._create():
                connection.execute(statement)
            # What PostgreSQL makes of the declaration: "int" and "integer" are one type.
            connection.execute(
                f"CREATE TEMP TABLE _tidelog_declared ({self.declared}) ON COMMIT DROP"
            )
            declared = columns_of(connection, "pg_temp._tidelog_declared")
            target = columns_of(connection, self.target)
            pending = columns_of(connection, self.pending)
            unique = unique_columns_of(connection, self.target)
        what = f"table {self.table!r} in {server.where}"
        check_columns(what, declared, target)
        self.key.check_unique(what, self.target, unique)
        if {name: kind for name, kind in pending.items() if name in declared} != declared:
            raise ConfigError(
                f"staging table {self.pending} in {server.where}",
                expected=f"the columns {declared}",
                found=str(pending),
                action="stop the job with the columns as before by a savepoint, drop this table, "
                "and start it with the new ones",
            )
        return declared

    def _check_new(self) -> None:
        # The whole text is a name: "sales.counts" would be made beside the one that is meant.
        schema, dot, name = self.table.partition(".")
        if dot:
            raise ConfigError(
                f"table {self.table!r}",
                expected="a name without a dot, where the table is not there yet",
                found=self.table,
                action=f"pass {name!r} with schema={schema!r}, or create a table of this name",
            )

    def _create(self) -> tuple[str, ...]:
        return (
            f"""CREATE TABLE IF NOT EXISTS {self.pending} (
                _tidelog_sink text, _tidelog_subtask int, _tidelog_generation bigint,
                _tidelog_attempt text, _tidelog_checkpoint bigint, _tidelog_seq bigint,
                {self.declared},
                PRIMARY KEY (_tidelog_sink, _tidelog_subtask, _tidelog_generation,
                             _tidelog_attempt, _tidelog_checkpoint, _tidelog_seq))""",
            f"""CREATE TABLE IF NOT EXISTS {self.committed} (
                sink text, subtask int, generation bigint, attempt text,
                checkpoint bigint NOT NULL,
                PRIMARY KEY (sink, subtask, generation, attempt))""",
            f"""CREATE TABLE IF NOT EXISTS {self.writers} (
                sink text PRIMARY KEY, generation bigint NOT NULL,
                attempt text NOT NULL)""",
        )


class _PostgresTables(StagingTables):
    """The constructor raises FencedError when a newer start of the job writes."""

    marks = ("$1", "$2", "$3", "$4", "$5")
    committed_columns = TransactionId._fields
    pending_columns = tuple(f"_tidelog_{name}" for name in TransactionId._fields)
    lock = " FOR SHARE"

    def __init__(
        self,
        server: PostgresConnection,
        names: TableNames,
        types: Mapping[str, str],
        context: SinkContext,
    ) -> None:
        columns = names.quoted_columns
        super().__init__(
            context,
            names.table,
            f"WITH _tidelog_moved AS (DELETE FROM {names.pending} "
            f"WHERE {self.where(self.pending_columns)} "
            f"RETURNING _tidelog_seq, {columns}){_changes(names)}",
            pending=names.pending,
            committed=names.committed,
            writers=names.writers,
        )
        self._server = server
        self._too_narrow = (
            f"give the columns of {names.target} the types back that they had when the job "
            f"started; the rows wait in {names.pending}, and the next start commits them"
        )
        shape = RowShape(names.table, names.columns, "a value PostgreSQL takes")
        kinds = {name: column_type(kind) for name, kind in types.items()}
        self._rows = names.key.rows(shape, kinds)
        self._count = (
            f"SELECT count(*) FROM {names.pending} WHERE {self.where(self.pending_columns)}"
        )
        self._copy = (
            f"COPY {names.pending} ({', '.join(self.pending_columns)}, _tidelog_seq, {columns}) "
            "FROM STDIN"
        )
        self.take_over()

    def connected(self) -> AbstractContextManager[Any]:
        return self._server.transaction()

    def close(self) -> None:
        self._server.close()

    def row(self, record: Any) -> tuple[Any, ...]:
        return self._rows.values(record)

    def stage(self, connection: Any, tx: TransactionId, rows: Sequence[Any]) -> None:
        with connection.cursor().copy(self._copy) as copy:
            for seq, row in enumerate(rows):
                copy.write_row((*tx, seq, *row))
                if seq % _ROWS_OF_AN_ANSWER == 0:
                    self._server.goes_on()
        self._server.goes_on()

    def move(self, connection: Any, tx: TransactionId) -> int:
        # Those that leave staging: a trigger of the target may take fewer, or put them elsewhere.
        (rows,) = connection.execute(self._count, tx).fetchone()
        self._server.goes_on()
        with self._server.stored_values(self._too_narrow):
            connection.execute(self.into, tx)
        self._server.goes_on()
        return int(rows)


def _changes(names: TableNames) -> str:
    """The rest of a statement that puts the rows of `_tidelog_moved` into the target."""
    key, columns = names.key, names.quoted_columns
    insert = f"INSERT INTO {names.target} ({columns}) SELECT {columns} FROM"
    if not key:
        return f" {insert} _tidelog_moved ORDER BY _tidelog_seq"
    newest = (
        f", _tidelog_newest AS (SELECT DISTINCT ON ({key.quoted}) * FROM _tidelog_moved "
        f"ORDER BY {key.quoted}, _tidelog_seq DESC)"
    )
    if not key.values:
        return f"{newest} {insert} _tidelog_newest ORDER BY _tidelog_seq{key.on_conflict()}"
    values = f"num_nonnulls({', '.join(map(quoted, key.values))})"
    removed = f"SELECT {key.quoted} FROM _tidelog_newest WHERE {values} = 0"
    delete = f"DELETE FROM {names.target} WHERE ({key.quoted}) IN ({removed})"
    return (
        f"{newest}, _tidelog_deleted AS ({delete}) "
        f"{insert} _tidelog_newest WHERE {values} > 0 ORDER BY _tidelog_seq{key.on_conflict()}"
    )
