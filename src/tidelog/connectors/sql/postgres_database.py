"""The database of a PostgreSQL sink.

Invariant: the target and the sink's own tables are there, with the columns that the sink has.
"""

from typing import Any, Final

from tidelog.connectors.sql.postgres_connection import PostgresConnection
from tidelog.connectors.sql.postgres_tables import Tables
from tidelog.errors import ConfigError

_CREATE_LOCK: Final = 0x7469_6465_6C6F_6701
"""One creator of tables at a time: PostgreSQL lets two that race fail."""


class Database(PostgresConnection):
    """A database with the target and the sink's own tables in it.

    Raises ConfigError when the driver is missing or the target has other columns, else as
    `transaction`.
    """

    def __init__(self, conninfo: str, tables: Tables) -> None:
        super().__init__(
            conninfo,
            "a PostgreSQL sink",
            "grant the user CREATE on the schema, TEMP on the database and access to the table",
        )
        self._tables = tables
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    def _prepare(self) -> None:
        tables = self._tables
        with self.transaction() as connection:
            connection.execute("SET LOCAL client_min_messages = warning")
            connection.execute("SELECT pg_advisory_xact_lock($1)", (_CREATE_LOCK,))
            for statement in tables.create():
                connection.execute(statement)
            # What PostgreSQL makes of the declaration: "int" and "integer" are one type.
            columns = tables.declared
            connection.execute(f"CREATE TEMP TABLE _tidelog_declared ({columns}) ON COMMIT DROP")
            wanted = _columns(connection, "pg_temp._tidelog_declared")
            target = _columns(connection, tables.target)
            pending = _columns(connection, tables.pending)
        if target != wanted:
            raise ConfigError(
                f"table {tables.table!r} in {self.where}",
                expected=f"the columns {wanted}",
                found=str(target),
                action="pass the columns the table has, or another table",
            )
        if {name: kind for name, kind in pending.items() if name in wanted} != wanted:
            raise ConfigError(
                f"staging table {tables.pending} in {self.where}",
                expected=f"the columns {wanted}",
                found=str(pending),
                action="drain the job with the columns as before, drop this table, and start it "
                "with the new ones",
            )


def _columns(connection: Any, table: str) -> dict[str, str]:
    """Names and types of a table's columns."""
    rows = connection.execute(
        "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
        "WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped",
        (table,),
    )
    return dict(rows.fetchall())
