"""A connection to a PostgreSQL server.

Invariants: changes happen in transactions; one that returned survives a crash of the server,
whatever its default is; a connection that broke is replaced before the next transaction; only
errors of `tidelog.errors` leave, and none of them shows a password.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final

from tidelog.connectors.tested import note_version
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


class PostgresConnection:
    """Used by one thread at a time; connects when it is used first.

    `what` is connected, as messages say; `grants` is what to do when a right is missing, `values`
    when a value is none of PostgreSQL or of Python. Each new connection begins with the statements
    `first`. Raises ConfigError when the driver is missing.
    """

    def __init__(
        self,
        conninfo: str,
        what: str,
        grants: str,
        first: Sequence[str] = (),
        values: str = "change the record before the sink, or the type of its column",
    ) -> None:
        with optional_library(what, "the library psycopg", "postgres"):
            self._driver: Any = import_module("psycopg")
        note_version("psycopg")
        self._conninfo = conninfo
        self._first = first
        self._actions = {_NO_RIGHT: grants, _NO_VALUE: values}
        self.where = _described(self._driver, conninfo, what)
        """The database as messages name it."""
        self._connection: Any = None

    @contextmanager
    def connection(self) -> Iterator[Any]:
        """The connection outside of transactions; raises as `transaction`."""
        with self._failures():
            yield self._connected()

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
                    Event.ROLLBACK_FAILED.log(logger, database=self.where, error=error)
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
            for statement in self._first:
                connection.execute(statement)
        return self._connection

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except self._driver.Error as error:
            raise _translated(error, self.where, self._actions, self._driver) from error


def columns_of(connection: Any, table: str) -> dict[str, str]:
    """Names and types of a table's columns, in their order; none for a table that is not there."""
    rows = connection.execute(
        "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
        "WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        (table,),
    )
    return dict(rows.fetchall())


def check_conninfo(conninfo: str, what: str) -> None:
    """Raises ConfigError for a connection string that is none, as an option that is not given."""
    if not isinstance(conninfo, str):
        raise _no_conninfo(what)


def _described(driver: Any, conninfo: str, what: str) -> str:
    """The database as messages name it; raises ConfigError."""
    try:
        parts = driver.conninfo.conninfo_to_dict(conninfo)
    except driver.Error:
        raise _no_conninfo(what) from None
    host = parts.get("host") or parts.get("hostaddr") or "the default host"
    port = f":{parts['port']}" if parts.get("port") else ""
    return f"database {parts.get('dbname') or '(default)'} at {host}{port}"


def _no_conninfo(what: str) -> ConfigError:
    return ConfigError(
        f"the connection string of {what}",
        expected="postgresql://user@host:port/database or keywords such as host=... dbname=...",
        # The string may hold a password, and the driver's message the string.
        found="something else",
        action="correct it",
    )


def _translated(error: Any, where: str, actions: Mapping[str, str], driver: Any) -> TidelogError:
    state = error.sqlstate or ""
    found = "; ".join(line.strip() for line in str(error).splitlines() if line.strip())
    if state == _NO_RIGHT:
        return AccessDeniedError(where, found=found, action=actions[_NO_RIGHT])
    if not state:
        # The driver itself: it could not turn a value into one of PostgreSQL's, or had no answer.
        of_value = isinstance(error, driver.DataError | driver.ProgrammingError)
        state = (
            _NO_VALUE if of_value else "08" if isinstance(error, driver.OperationalError) else ""
        )
    for prefix, (kind, action) in _KINDS.items():
        if state.startswith(prefix):
            return kind(where, found=found, action=actions.get(prefix, action))
    action = "see the cause; it is not one tidelog knows"
    return StorageError(where, found=found, action=action)


_NO_RIGHT: Final = "42501"
_NO_VALUE: Final = "22"
_KINDS: Final[dict[str, tuple[type[TidelogError], str]]] = {
    "08": (StoreUnreachableError, "check that the server runs and can be reached from here"),
    "57P": (StoreUnreachableError, "wait until the server is back"),
    _NO_VALUE: (UserFunctionError, ""),
    "23": (
        StorageError,
        "relax the constraint or remove the rows in its way; the new ones wait in staging",
    ),
    "28": (AccessDeniedError, "check user and password of the connection string"),
    "3D": (ConfigError, "create the database, or correct its name"),
    "3F": (ConfigError, "create the schema, or correct its name"),
    "42P01": (StorageError, "bring back the table"),
    "42704": (ConfigError, "correct the types of the columns"),
    "53100": (StoreFullError, "free or add space, then continue"),
    "40": (StorageError, "try again"),
}
"""Error class and action by the first characters of the SQLSTATE."""
