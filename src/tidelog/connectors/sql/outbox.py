"""A PostgreSQL table as a source: an outbox, to which programs add rows with their other changes.

Invariants: a row has the id of the transaction that added it, and only rows of transactions older
than all that still run are read; whatever commits later therefore stands after the position, which
is the transaction and the row that were read last; rows of one transaction with the same number are
read together, so that none stands beside the position unread; rows are deleted only when a
completed checkpoint covers them.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tidelog.connectors.arguments import typed
from tidelog.connectors.outside import ANSWER_S
from tidelog.connectors.sql.postgres_connection import (
    PostgresConnection,
    check_conninfo,
    columns_of,
)
from tidelog.connectors.sql.upserts import quoted
from tidelog.errors import (
    ConfigError,
    RestoreError,
    StoreUnreachableError,
    UnavailableError,
    require,
)
from tidelog.events import Event
from tidelog.runtime.source import Source, SplitReader
from tidelog.state.schema.row import Row

logger = logging.getLogger(__name__)

POLL_S: Final = 0.5
BATCH_ROWS: Final = 1000

_OLDEST_VERSION: Final = 13
_IDS: Final = frozenset({"smallint", "integer", "bigint"})
_START: Final = (0, -(1 << 63))


class PostgresOutboxSource(Source):
    """Rows of a table as `Row`s; any server from version 13 on will do.

    `xid` names a column of type xid8 that defaults to `pg_current_xact_id()`, `id` one of whole
    numbers that grow within a transaction, both declared NOT NULL; an index on both, in this order,
    keeps reads cheap. `columns` names those that are read, all without it. The table is looked at
    every `poll` seconds, and at once after a NOTIFY on `channel`. With `delete` rows that a
    completed checkpoint covers are removed. The server may take `answer_s` for an answer; one that
    does not is asked again. Raises ConfigError.
    """

    blocking = True

    @typed
    def __init__(
        self,
        conninfo: str,
        table: str,
        *,
        id: str = "id",
        xid: str = "xid",
        columns: Sequence[str] | None = None,
        schema: str | None = None,
        delete: bool = False,
        channel: str | None = None,
        poll: float = POLL_S,
        batch_rows: int = BATCH_ROWS,
        answer_s: float = ANSWER_S,
    ) -> None:
        for option, value in (("poll", poll), ("batch_rows", batch_rows), ("answer_s", answer_s)):
            require(option, value, value > 0, "more than 0")
        valid = columns is None or (bool(columns) and not isinstance(columns, str))
        require("columns", repr(columns), valid, "a list of names of columns")
        check_conninfo(conninfo, "a PostgreSQL outbox")
        self.conninfo = conninfo
        self.table = table
        self.target = quoted(table) if schema is None else f"{quoted(schema)}.{quoted(table)}"
        self.id = id
        self.xid = xid
        self.columns = None if columns is None else tuple(columns)
        self.delete = delete
        self.channel = channel
        self.poll = poll
        self.batch_rows = batch_rows
        self.answer_s = answer_s
        self.completed: tuple[int, int] | None = None
        """The newest position that a completed checkpoint of this run holds."""

    def discover(self) -> list[str]:
        return [self.table]

    def open(self, split: str, position: Any) -> "OutboxReader":
        """Raises ConfigError for a table that is no outbox, RestoreError for a database that cannot
        be the one that was read before, or another table in the checkpoint, and as
        `PostgresConnection.transaction`.
        """
        if split != self.table:
            raise RestoreError(
                f"split {split!r} of a PostgresOutboxSource",
                expected=f"its table, {self.table!r}",
                found="another one in the checkpoint",
                action="go back to that; or give this source another name= and drop the position "
                "of the other with --allow-non-restored-state",
            )
        return OutboxReader(self, position)

    def on_checkpoint_complete(self, positions: Mapping[str, Any]) -> None:
        """Rows up to these positions are not read again: the next read removes them."""
        for position in positions.values():
            self.completed = tuple(position)


class OutboxReader(SplitReader):
    """Reads the table; a server that is away after the start is waited for."""

    position: tuple[int, int]

    def __init__(self, source: PostgresOutboxSource, position: Any) -> None:
        self._source = source
        self._server = PostgresConnection(
            source.conninfo,
            "a PostgreSQL outbox",
            "grant the user SELECT on the table, and DELETE where rows are deleted",
            "leave the column out with columns=, or change the value in the table",
            answer_s=source.answer_s,
            channel=source.channel,
        )
        self._away = False
        self.position = _START if position is None else tuple(position)
        self._deleted: tuple[int, int] | None = None
        # That of the restored checkpoint, not of an earlier run in this process.
        source.completed = None if position is None else self.position
        try:
            self._names = self._checked()
        except BaseException:
            self.close()
            raise
        self._select = self._statement()

    def read(self) -> list[Any] | None:
        """The next rows; an empty list when there are none, or the server does not answer."""
        try:
            self._delete()
            rows = self._rows()
            if not rows and self._server.listens and self._server.notified(self._source.poll):
                rows = self._rows()
        except StoreUnreachableError as error:
            if not self._away:
                Event.SOURCE_AWAY.log(logger, source=self._server.where, error=error)
            self._away = True
            self.delay_s = self._source.poll
            return []
        if self._away:
            Event.SOURCE_BACK.log(logger, source=self._server.where)
        self._away = False
        # With a channel, `notified` has waited already.
        self.delay_s = 0.001 if self._server.listens else self._source.poll
        if rows:
            *_, xid, number = rows[-1]
            self.position = (int(xid), number)
        return [Row.of(self._names, row[:-2]) for row in rows]

    def close(self) -> None:
        self._server.close()

    def _rows(self) -> list[Any]:
        xid, number = self.position
        parameters = (str(xid), number, self._source.batch_rows)
        with self._server.transaction() as connection:
            rows: list[Any] = connection.execute(self._select, parameters).fetchall()
        return rows

    def _delete(self) -> None:
        upto, source = self._source.completed, self._source
        if not source.delete or upto is None or upto == self._deleted:
            return
        with self._server.transaction() as connection:
            key = f"({quoted(source.xid)}, {quoted(source.id)})"
            connection.execute(
                f"DELETE FROM {source.target} WHERE {key} <= ($1::text::xid8, $2::bigint)",
                (str(upto[0]), upto[1]),
            )
        self._deleted = upto

    def _statement(self) -> str:
        # With the table's name: alone it would mean the column of the result, which is text.
        xid, number = f"o.{quoted(self._source.xid)}", f"o.{quoted(self._source.id)}"
        names = "".join(f"o.{quoted(name)}, " for name in self._names)
        # Transactions below the snapshot's xmin have ended, so none of them adds rows any more.
        return (
            f"SELECT {names}{xid}::text, {number}::bigint FROM {self._source.target} o "
            f"WHERE ({xid}, {number}) > ($1::text::xid8, $2::bigint) "
            f"AND {xid} < pg_snapshot_xmin(pg_current_snapshot()) "
            f"ORDER BY {xid}, {number} FETCH FIRST $3 ROWS WITH TIES"
        )

    def _checked(self) -> tuple[str, ...]:
        """The names of the columns that are read."""
        source = self._source
        where = f"table {source.table!r} in {self._server.where}"
        with self._server.transaction() as connection:
            version = connection.info.server_version // 10_000
            if version < _OLDEST_VERSION:
                expected = f"PostgreSQL {_OLDEST_VERSION} or newer"
                raise _refused(self._server.where, expected, version, "upgrade the server")
            types = columns_of(connection, source.target)
            nullable = _nullable(connection, source)
            (next_xid,) = connection.execute(
                "SELECT pg_snapshot_xmax(pg_current_snapshot())::text"
            ).fetchone()
        if not types:
            raise UnavailableError(
                where, expected="an outbox table", found="none", action="create it, or correct it"
            )
        if types.get(source.xid) != "xid8":
            default = "xid8 that defaults to pg_current_xact_id()"
            action = f"ALTER TABLE {source.target} ADD COLUMN {quoted(source.xid)} xid8 NOT NULL "
            action += "DEFAULT pg_current_xact_id(), or name it in xid="
            raise _refused(where, f"a column {source.xid!r} of type {default}", types, action)
        if types.get(source.id) not in _IDS:
            expected = f"a column {source.id!r} of type bigint, integer or smallint"
            action = "name the one that orders rows within a transaction in id="
            raise _refused(where, expected, types, action)
        if nullable:
            changes = ", ".join(f"ALTER COLUMN {quoted(name)} SET NOT NULL" for name in nullable)
            expected = f"columns {source.xid!r} and {source.id!r} that are NOT NULL: rows without "
            expected += "them have no place in the order, and would never be read"
            action = f"ALTER TABLE {source.target} {changes}"
            raise _refused(where, expected, f"{nullable} without it", action)
        unknown = [name for name in source.columns or () if name not in types]
        if unknown:
            expected = f"the columns {source.columns}"
            raise _refused(where, expected, f"no {unknown}", "correct columns=")
        if int(next_xid) <= self.position[0]:
            raise RestoreError(
                where,
                expected=f"the database in which transaction {self.position[0]} was read",
                found=f"one whose next transaction is {next_xid}",
                action="bring that database back; one that was loaded from a dump counts anew: "
                "start without this checkpoint then, with a table of what is not handled yet",
            )
        return source.columns or tuple(name for name in types if name != source.xid)


def _nullable(connection: Any, source: PostgresOutboxSource) -> list[str]:
    """Which of its two columns a row may lack; a view cannot say so."""
    rows = connection.execute(
        "SELECT attname FROM pg_attribute JOIN pg_class ON attrelid = pg_class.oid WHERE attrelid "
        "= to_regclass($1) AND attname = ANY($2) AND NOT attnotnull AND relkind IN ('r', 'p')",
        (source.target, [source.xid, source.id]),
    )
    return sorted(name for (name,) in rows.fetchall())


def _refused(where: str, expected: str, found: object, action: str) -> ConfigError:
    return ConfigError(where, expected=expected, found=str(found), action=action)
