"""Databases that sinks write to, as their readers see them."""

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from tests.support import postgres
from tidelog import PostgresSink, SqliteSink
from tidelog.connectors.sql.postgres import TableNames

COLUMNS = {"word": "text", "n": "bigint"}


@dataclass(frozen=True)
class Database:
    """One of SQLite in a file, or one of a PostgreSQL server."""

    kind: str
    at: Any

    def sink(
        self, table: str = "words", columns: Mapping[str, str] = COLUMNS, key: Sequence[str] = ()
    ) -> Any:
        kind = SqliteSink if self.kind == "sqlite" else PostgresSink
        return kind(self.at, table, columns, key=key)

    def ask(self, sql: str) -> list[Any]:
        if self.kind == "postgres":
            return postgres.query(self.at, sql)
        with closing(sqlite3.connect(self.at)) as connection:
            rows = connection.execute(sql).fetchall()
            connection.commit()
            return rows

    def shown(self) -> list[Any]:
        order = "rowid" if self.kind == "sqlite" else "ctid"
        return self.ask(f"SELECT word, n FROM words ORDER BY {order}")

    @property
    def pending(self) -> str:
        return "_tidelog_pending" if self.kind == "sqlite" else TableNames("words", COLUMNS).pending

    def staged(self) -> int:
        return int(self.ask(f"SELECT count(*) FROM {self.pending}")[0][0])
