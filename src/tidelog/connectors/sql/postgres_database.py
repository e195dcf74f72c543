"""A connection to the database of a PostgreSQL sink.

Invariants: changes happen in transactions; one that returned survives a crash of the server,
whatever its default is; a connection that broke is replaced before the next transaction; only
errors of `tidelog.errors` leave, and none of them shows a password.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final

from tidelog.connectors.sql.postgres_tables import Tables
from tidelog.errors import (
    AccessDeniedError,
    ConfigError,
    StorageError,
    StoreFullError,
    StoreUnreachableError,
    TidelogError,
    UserFunctionError,
    optional_library,
)
from tidelog.events import Event

logger = logging.getLogger(__name__)

_CONNECT_TIMEOUT_S: Final = 10
_CREATE_LOCK: Final = 0x7469_6465_6C6F_6701
"""One creator of tables at a time: PostgreSQL lets two that race fail."""


class Database:
    """A database with the target and the sink's own tables in it.

    Used by one thread at a time. Raises ConfigError when the driver is missing or the target has
    other columns, else as `transaction`.
    """

    def __init__(self, conninfo: str, tables: Tables) -> None:
        self._driver = _driver()
        self._conninfo = conninfo
        self._tables = tables
        self._where = _described(self._driver, conninfo)
        self._connection: Any = None
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """All or nothing.

        Raises StoreUnreachableError, StoreFullError, AccessDeniedError, ConfigError, StorageError,
        and UserFunctionError for a value that its column does not take.
        """
        with self._failures():
            connection = self._connected()
            try:
                connection.execute("BEGIN")
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                # The error at hand says more than one of a connection that broke.
                try:
                    connection.execute("ROLLBACK")
                except self._driver.Error as error:
                    Event.ROLLBACK_FAILED.log(logger, database=self._where, error=error)
                    connection.close()
                raise

    def close(self) -> None:
        """Close the connection; the server rolls back what is open."""
        if self._connection is not None:
            self._connection.close()

    def _connected(self) -> Any:
        if self._connection is None or self._connection.closed:
            connection = self._driver.connect(
                self._conninfo,
                autocommit=True,
                connect_timeout=_CONNECT_TIMEOUT_S,
                application_name="tidelog",
                # Statements hold names that may contain a percent sign: "$1" leaves them alone.
                cursor_factory=self._driver.RawCursor,
            )
            self._connection = connection
            # A pre-committed transaction must be durable before the manifest that names it.
            connection.execute(
                "SELECT set_config('synchronous_commit', 'on', false) "
                "WHERE current_setting('synchronous_commit') = 'off'"
            )
        return self._connection

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
                f"table {tables.table!r} in {self._where}",
                expected=f"the columns {wanted}",
                found=str(target),
                action="pass the columns the table has, or another table",
            )
        if {name: kind for name, kind in pending.items() if name in wanted} != wanted:
            raise ConfigError(
                f"staging table {tables.pending} in {self._where}",
                expected=f"the columns {wanted}",
                found=str(pending),
                action="drain the job with the columns as before, drop this table, and start it "
                "with the new ones",
            )

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except self._driver.Error as error:
            raise _translated(error, self._where, self._driver) from error


def _columns(connection: Any, table: str) -> dict[str, str]:
    """Names and types of a table's columns."""
    rows = connection.execute(
        "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
        "WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped",
        (table,),
    )
    return dict(rows.fetchall())


def _driver() -> Any:
    with optional_library(
        "a PostgreSQL sink",
        expected="the library psycopg",
        action="pip install 'tidelog[postgres]'",
    ):
        return import_module("psycopg")


def _described(driver: Any, conninfo: str) -> str:
    """The database as messages name it; raises ConfigError."""
    try:
        parts = driver.conninfo.conninfo_to_dict(conninfo)
    except driver.Error:
        raise ConfigError(
            "the connection string of a PostgreSQL sink",
            expected="postgresql://user@host:port/database or keywords such as host=... dbname=...",
            # The string may hold a password, and the driver's message the string.
            found="something else",
            action="correct it",
        ) from None
    host = parts.get("host") or parts.get("hostaddr") or "the default host"
    port = f":{parts['port']}" if parts.get("port") else ""
    return f"database {parts.get('dbname') or '(default)'} at {host}{port}"


def _translated(error: Any, where: str, driver: Any) -> TidelogError:
    state = error.sqlstate or ""
    found = "; ".join(line.strip() for line in str(error).splitlines() if line.strip())
    for prefix, (kind, action) in _KINDS.items():
        if state.startswith(prefix):
            return kind(where, found=found, action=action)
    if isinstance(error, driver.DataError | driver.ProgrammingError) and not state:
        # The driver itself could not turn a value into one of PostgreSQL's.
        kind, action = _KINDS["22"]
        return kind(where, found=found, action=action)
    if isinstance(error, driver.OperationalError) and not state:
        action = "check that the server runs and can be reached from here"
        return StoreUnreachableError(where, found=found, action=action)
    action = "see the cause; it is not one tidelog knows"
    return StorageError(where, found=found, action=action)


_KINDS: Final[dict[str, tuple[type[TidelogError], str]]] = {
    "08": (StoreUnreachableError, "check that the server runs and can be reached from here"),
    "57P": (StoreUnreachableError, "wait until the server is back"),
    "22": (UserFunctionError, "change the record before the sink, or the type of its column"),
    "23": (
        StorageError,
        "relax the constraint or remove the rows in its way; the new ones wait in staging",
    ),
    "28": (AccessDeniedError, "check user and password of the connection string"),
    "3D": (ConfigError, "create the database, or correct its name"),
    "3F": (ConfigError, "create the schema, or correct its name"),
    "42501": (
        AccessDeniedError,
        "grant the user CREATE on the schema, TEMP on the database and access to the table",
    ),
    "42P01": (StorageError, "bring back the tables of this sink"),
    "42704": (ConfigError, "correct the types of the columns"),
    "53100": (StoreFullError, "free or add space, then continue"),
    "40": (StorageError, "try again"),
}
"""Error class and action by the first characters of the SQLSTATE."""
