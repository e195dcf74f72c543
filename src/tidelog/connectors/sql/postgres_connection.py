"""A connection to a PostgreSQL server.

Invariants: changes happen in transactions; one that returned survives a crash of the server,
whatever its default is; nothing outlives them in the session, so that a pooler may stand between;
a connection that broke is replaced before the next transaction; no call waits without end; only
errors of `tidelog.errors` leave, and none of them shows a password.
"""

import logging
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from typing import Any, Final

from tidelog.concurrency import interruptible
from tidelog.connectors.outside import Wait, answered, bounded
from tidelog.connectors.sql.upserts import quoted
from tidelog.connectors.tested import note_version
from tidelog.errors import (
    AccessDeniedError,
    ConfigError,
    StorageError,
    StoreFullError,
    StoreUnreachableError,
    TidelogError,
    UnavailableError,
    UserFunctionError,
    optional_library,
)
from tidelog.events import Event

logger = logging.getLogger(__name__)

_CONNECT_TIMEOUT_S: Final = 10
_DEFAULTS: Final = {
    "connect_timeout": _CONNECT_TIMEOUT_S,
    "application_name": "tidelog",
    # What a firewall or a fail-over has forgotten is noticed by the system, within half a minute.
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 4,
    "tcp_user_timeout": 30_000,
}
"""What the connection string does not say."""
_BEGIN: Final = (
    # For the transaction alone: a pooler may give each one another session. A pre-committed
    # transaction must be durable before the manifest that names it.
    "BEGIN; SET LOCAL TimeZone = 'UTC'; SELECT set_config('synchronous_commit', 'on', true) "
    "WHERE current_setting('synchronous_commit') = 'off'"
)


class PostgresConnection:
    """Used by one thread at a time; connects when it is used first.

    `what` is connected, as messages say; `grants` is what to do when a right is missing, `values`
    when a value is none of PostgreSQL or of Python. An answer may take `answer_s`. A connection to
    the server itself listens to `channel`. Raises ConfigError when the driver is missing.
    """

    def __init__(
        self,
        conninfo: str,
        what: str,
        grants: str,
        values: str = "change the record before the sink, or the type of its column",
        *,
        answer_s: float,
        channel: str | None = None,
    ) -> None:
        with optional_library(what, "the library psycopg", "postgres"):
            self._driver: Any = import_module("psycopg")
        note_version("psycopg")
        self._channel = channel
        self._answer_s = answer_s
        self._actions = {_NO_RIGHT: grants, _NO_VALUE: values}
        self.where, self._parameters = _described(self._driver, conninfo, what)
        """The database as messages name it."""
        self._connection: Any = None
        self._wait: Wait | None = None
        self.listens = False
        """Whether the connection gets notifications."""

    def notified(self, seconds: float) -> bool:
        """Wait for a notification outside of transactions; raises as `transaction`."""
        with self._failures(), interruptible(self._cut):
            notices = self._connected().notifies(timeout=seconds, stop_after=1)
            return any(True for _ in notices)

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """All or nothing.

        Raises StoreUnreachableError, StoreFullError, AccessDeniedError, ConfigError, StorageError,
        and UserFunctionError for a value that its column does not take.
        """
        what = f"a transaction in {self.where}"
        with self._failures(), answered(what, self._answer_s, self._cut) as self._wait:
            connection = self._begun()
            try:
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

    @contextmanager
    def stored_values(self, action: str) -> Iterator[None]:
        """Within a transaction: values that are refused are in the database already, where no
        change of a record helps; raises StorageError.
        """
        try:
            yield
        except self._driver.DataError as error:
            raise StorageError(self.where, found=_said_by(error), action=action) from error

    def goes_on(self) -> None:
        """Within a transaction: the server has taken something, and may take its time again."""
        if self._wait is not None:
            self._wait.goes_on()

    def close(self) -> None:
        """Close the connection; the server rolls back what is open."""
        if self._connection is not None:
            self._connection.close()

    def _begun(self) -> Any:
        """A connection in a transaction. One that broke while nobody used it, as where the server
        ends those that are idle, is replaced.
        """
        previous, connection = self._connection, self._connected()
        try:
            connection.execute(_BEGIN)
        except self._driver.OperationalError:
            if connection is not previous or not connection.closed:
                connection.close()
                raise
            connection = self._connected()
            connection.execute(_BEGIN)
        return connection

    def _connected(self) -> Any:
        if self._connection is None or self._connection.closed:
            connect = partial(
                self._driver.connect,
                **self._parameters,
                autocommit=True,
                # A pooler may run each transaction in a session without what others have prepared.
                prepare_threshold=None,
                # Statements hold names that may contain a percent sign: "$1" leaves them alone.
                cursor_factory=self._driver.RawCursor,
            )
            connection = bounded(f"a connection to {self.where}", self._answer_s, connect)
            self._connection = connection
            if self._channel is not None:
                self._listen(connection, self._channel)
        return self._connection

    def _listen(self, connection: Any, channel: str) -> None:
        self.listens = _is_direct(connection)
        if self.listens:
            connection.execute(f"LISTEN {quoted(channel)}")
        else:
            Event.NOT_LISTENING.log(logger, channel=channel, database=self.where)

    def _cut(self) -> None:
        """By another thread: a call that waits for the server fails."""
        connection = self._connection
        with suppress(OSError, self._driver.Error):
            if connection is not None and not connection.closed:
                with socket.socket(fileno=os.dup(connection.fileno())) as line:
                    line.shutdown(socket.SHUT_RDWR)

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except self._driver.Error as error:
            raise _translated(error, self.where, self._actions, self._driver) from error


def _is_direct(connection: Any) -> bool:
    """Whether this is a session of the server's, no pooler's, which has numbers of its own."""
    (number,) = connection.execute("SELECT pg_backend_pid()").fetchone()
    return bool(number == connection.info.backend_pid)


def columns_of(connection: Any, table: str) -> dict[str, str]:
    """Names and types of a table's columns, in their order; none for a table that is not there."""
    rows = connection.execute(
        "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
        "WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        (table,),
    )
    return dict(rows.fetchall())


def unique_columns_of(connection: Any, table: str) -> list[list[str]]:
    """The columns of each constraint or index that makes them unique in all rows of a table."""
    rows = connection.execute(
        "SELECT array_agg(attname::text) FROM pg_index JOIN pg_attribute ON attrelid = indrelid "
        "AND attnum = ANY((indkey::int2[])[0:indnkeyatts - 1]) WHERE indrelid = to_regclass($1) "
        "AND indisunique AND indimmediate AND indisvalid AND indpred IS NULL "
        "AND indexprs IS NULL GROUP BY indexrelid",
        (table,),
    )
    return [names for (names,) in rows.fetchall()]


def check_conninfo(conninfo: str, what: str) -> None:
    """Raises ConfigError for a connection string that is none, as an option that is not given."""
    if not isinstance(conninfo, str):
        raise _no_conninfo(what)


def _described(driver: Any, conninfo: str, what: str) -> tuple[str, dict[str, Any]]:
    """The database as messages name it, and how to connect to it; raises ConfigError."""
    try:
        parts = driver.conninfo.conninfo_to_dict(conninfo)
    except driver.Error:
        raise _no_conninfo(what) from None
    host = parts.get("host") or parts.get("hostaddr") or "the default host"
    port = f":{parts['port']}" if parts.get("port") else ""
    return f"database {parts.get('dbname') or '(default)'} at {host}{port}", _DEFAULTS | parts


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
    message = _said_by(error)
    if state == _NO_RIGHT:
        return AccessDeniedError(where, found=message, action=actions[_NO_RIGHT])
    if not state:
        # The driver itself: it could not turn a value into one of PostgreSQL's, or had no answer.
        if isinstance(error, driver.DataError | driver.ProgrammingError):
            state = _NO_VALUE
        elif isinstance(error, driver.OperationalError):
            state = "08"
    for prefix, (kind, action) in _KINDS.items():
        if state.startswith(prefix):
            return kind(where, found=message, action=actions.get(prefix, action))
    action = "see the cause; it is not one tidelog knows"
    return StorageError(where, found=message, action=action)


def _said_by(error: Any) -> str:
    return "; ".join(line.strip() for line in str(error).splitlines() if line.strip())


_NO_RIGHT: Final = "42501"
_NO_VALUE: Final = "22"
_NO_TYPE: Final = "correct the types in columns= of the sink"
_KINDS: Final[dict[str, tuple[type[TidelogError], str]]] = {
    "08": (StoreUnreachableError, "check that the server runs and can be reached from here"),
    "57P": (StoreUnreachableError, "wait until the server is back"),
    _NO_VALUE: (UserFunctionError, ""),
    "23": (
        StorageError,
        "relax the constraint or remove the rows in its way; the new ones wait in staging",
    ),
    "28": (AccessDeniedError, "check user and password of the connection string"),
    "3D": (UnavailableError, "create the database, or correct its name"),
    "3F": (UnavailableError, "create the schema, or correct its name"),
    "42P01": (StorageError, "bring back the table"),
    "42601": (ConfigError, _NO_TYPE),
    "42704": (ConfigError, _NO_TYPE),
    "53100": (StoreFullError, "free or add space, then continue"),
    "40": (StorageError, "try again"),
}
"""Error class and action by the first characters of the SQLSTATE."""
