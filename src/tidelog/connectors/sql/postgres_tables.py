"""The tables of a PostgreSQL sink and the statements that work on them.

Invariants: all names are quoted; staging has the declared columns of the target, so a value that
does not fit is refused when it is staged and never when it is moved.
"""

import hashlib
import re
from collections.abc import Mapping
from typing import Final

from tidelog.connectors.sql.records import quoted
from tidelog.errors import ConfigError

_TYPE: Final = re.compile(
    r"(double precision|(character|bit) varying|\w+(\.\w+)?)"
    r"(\(\d+(, ?\d+)?\))?( with(out)? time zone)?(\[\])?",
    re.IGNORECASE,
)
_OF_TX: Final = (
    "_tidelog_sink = $1 AND _tidelog_subtask = $2 AND _tidelog_generation = $3 "
    "AND _tidelog_attempt = $4 AND _tidelog_checkpoint = $5"
)
_OF_START: Final = "sink = $1 AND subtask = $2 AND generation = $3 AND attempt = $4"


class Tables:
    """Statements for one target table; parameters as the comments beside them say.

    Raises ConfigError when there are no columns or a type is not one.
    """

    def __init__(self, table: str, columns: Mapping[str, str], schema: str | None = None) -> None:
        if not columns or not all(map(_TYPE.fullmatch, columns.values())):
            raise ConfigError(
                f"columns of table {table!r}",
                expected="column names with types such as text, bigint or timestamptz",
                found=str(dict(columns)),
                action="correct them; create the table yourself if it needs constraints",
            )
        self.table = table
        self.columns = dict(columns)
        prefix = "" if schema is None else quoted(schema) + "."
        self.target = prefix + quoted(table)
        # A name of our own, and short: PostgreSQL cuts names at 63 bytes without a word.
        digest = hashlib.blake2b(table.encode(), digest_size=8).hexdigest()
        self.pending = prefix + quoted(f"_tidelog_pending_{digest}")
        self.committed = prefix + quoted("_tidelog_committed")
        self.writers = prefix + quoted("_tidelog_writers")
        self._names = ", ".join(map(quoted, columns))

    @property
    def declared(self) -> str:
        """The columns as a definition."""
        return ", ".join(f"{quoted(name)} {kind}" for name, kind in self.columns.items())

    def create(self) -> tuple[str, ...]:
        """Statements that create what is absent."""
        return (
            f"CREATE TABLE IF NOT EXISTS {self.target} ({self.declared})",
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
                sink text PRIMARY KEY, generation bigint NOT NULL)""",
        )

    def take_over(self) -> str:
        """(sink, generation): returns a row unless a newer generation writes already."""
        return (
            f"INSERT INTO {self.writers} AS known VALUES ($1, $2) ON CONFLICT (sink) DO UPDATE "
            "SET generation = excluded.generation "
            "WHERE known.generation <= excluded.generation RETURNING generation"
        )

    def writer(self) -> str:
        """(sink): the generation that writes; it stays until the transaction has ended."""
        return f"SELECT generation FROM {self.writers} WHERE sink = $1 FOR SHARE"

    def copy(self) -> str:
        """Rows into staging: the key of the transaction, a number, the values."""
        return (
            f"COPY {self.pending} (_tidelog_sink, _tidelog_subtask, _tidelog_generation, "
            f"_tidelog_attempt, _tidelog_checkpoint, _tidelog_seq, {self._names}) FROM STDIN"
        )

    def staged_by(self) -> str:
        """(sink): the keys of the transactions that have rows in staging."""
        return (
            "SELECT DISTINCT _tidelog_sink, _tidelog_subtask, _tidelog_generation, "
            f"_tidelog_attempt, _tidelog_checkpoint FROM {self.pending} WHERE _tidelog_sink = $1"
        )

    def remove_pending(self) -> str:
        """The key of a transaction: its rows in staging."""
        return f"DELETE FROM {self.pending} WHERE {_OF_TX}"

    def committed_by(self) -> str:
        """(sink): subtasks, generations and attempts whose commits are recorded."""
        return f"SELECT sink, subtask, generation, attempt FROM {self.committed} WHERE sink = $1"

    def forget(self) -> str:
        """(sink, subtask, generation, attempt): no longer record its commits."""
        return f"DELETE FROM {self.committed} WHERE {_OF_START}"

    def committed_upto(self) -> str:
        """(sink, subtask, generation, attempt): the newest checkpoint committed."""
        return f"SELECT checkpoint FROM {self.committed} WHERE {_OF_START}"

    def move(self) -> str:
        """The key of a transaction: its rows from staging to the target, in order."""
        return (
            f"WITH moved AS (DELETE FROM {self.pending} WHERE {_OF_TX} "
            f"RETURNING _tidelog_seq, {self._names}) "
            f"INSERT INTO {self.target} ({self._names}) "
            f"SELECT {self._names} FROM moved ORDER BY _tidelog_seq"
        )

    def record(self) -> str:
        """The key of a transaction: it is committed, and so are those before it."""
        return (
            f"INSERT INTO {self.committed} VALUES ($1, $2, $3, $4, $5) "
            "ON CONFLICT (sink, subtask, generation, attempt) "
            "DO UPDATE SET checkpoint = excluded.checkpoint"
        )
