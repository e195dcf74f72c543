"""Exactly once into a table of a database: two-phase commit through a staging table.

Invariants: `pre_commit` stores rows in a staging table of the same database; one transaction of
the database moves them to the target and records the checkpoint in `_tidelog_committed`; so a row
is in one of the two tables, and no transaction moves twice. Each looks first whether the row of
`_tidelog_writers` names our start, so nothing of an older one happens after a newer one has begun.
For each start of the job only the newest commit is recorded, for as long as a retained checkpoint
names one of that start.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar

import msgspec

from tidelog.connectors import transactions
from tidelog.connectors.transactions import CLONE, TransactionId, Writer, check_begins
from tidelog.errors import ConfigError, ObjectNotFoundError, require
from tidelog.ids import CheckpointId
from tidelog.options.units import plural
from tidelog.runtime.sink import SinkContext, SinkWriter
from tidelog.runtime.user_code import map_all


def check_types(
    table: str, columns: Mapping[str, str], type_pattern: re.Pattern[str], examples: str
) -> None:
    """Raise ConfigError when there are no columns, or a name or a type is not one."""
    require(f"columns of table {table!r}", "none", bool(columns), f"names with types: {examples}")
    for name, kind in columns.items():
        is_name = isinstance(name, str) and bool(name)
        require(f"name of a column of table {table!r}", repr(name), is_name, "a text")
        if not (isinstance(kind, str) and type_pattern.fullmatch(kind)):
            raise ConfigError(
                f"type of column {name!r} of table {table!r}",
                expected=f"a text such as {examples}",
                found=kind.__name__ if isinstance(kind, type) else repr(kind),
                action="correct it; create the table yourself if it needs constraints",
            )


def check_columns(what: str, expected: Mapping[str, str], actual: Mapping[str, str]) -> None:
    """Raise ConfigError when a table has other columns."""
    if actual != expected:
        raise ConfigError(
            what,
            expected=f"the columns {expected}",
            found=str(actual),
            action="pass the columns the table has, or another table",
        )


class StagedTransaction(msgspec.Struct, frozen=True, array_like=True):
    """A pre-committed transaction: how many rows it has in staging, and where they go."""

    tx: TransactionId
    rows: int
    into: str
    """The statement that fills the target; it changes with the table and its columns."""


class StagingTables(ABC):
    """The tables of one sink in its database; `connection` is that of an open `transaction`.

    A dialect names its tables and the columns that hold the key of a transaction in each.
    """

    marks: ClassVar[Sequence[str]]
    """Parameters of a statement, in their order."""
    committed_columns: ClassVar[Sequence[str]]
    pending_columns: ClassVar[Sequence[str]]

    lock: ClassVar[str] = ""
    """The end of a SELECT whose row stays as it is until the transaction has ended."""

    def __init__(
        self,
        context: SinkContext,
        table: str,
        into: str,
        *,
        pending: str,
        committed: str,
        writers: str,
    ) -> None:
        # Jobs that share a database and a sink's name differ at least in their tables.
        self.sink = f"{context.job}/{context.name}/{table}"
        """The sink's name in the tables that all sinks of a database share."""
        self.into = into
        self._staged = self._keys(pending, self.pending_columns)
        self._committed = self._keys(committed, self.committed_columns)
        self._remove = self._delete(pending, self.pending_columns)
        self._forget = self._delete(committed, self.committed_columns)
        self.forget_all = self._forget_all(committed)
        """How a user makes the database forget what the sink has committed."""
        marks = ", ".join(self.marks[: len(self.committed_columns)])
        self._me = Writer.of(context)
        self._writers = writers
        first, second, third = self.marks[:3]
        self._take = (
            f"INSERT INTO {writers} AS known VALUES ({first}, {second}, {third}) "
            "ON CONFLICT (sink) DO UPDATE "
            "SET generation = excluded.generation, attempt = excluded.attempt "
            "WHERE known.generation < excluded.generation"
        )
        self._owner = f"SELECT generation, attempt FROM {writers} WHERE sink = {first}{self.lock}"
        self._record = f"INSERT INTO {committed} VALUES ({marks})"

    @abstractmethod
    def connected(self) -> AbstractContextManager[Any]:
        """A transaction of the database, all or nothing; raises errors of `tidelog.errors`."""

    def take_over(self) -> None:
        """Become the start that writes; raises FencedError when a newer one does."""
        with self.connected() as connection:
            connection.execute(self._take, (self.sink, *self._me))
        with self.transaction():
            pass

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """As `connected`; raises FencedError when another start writes."""
        with self.connected() as connection:
            row = connection.execute(self._owner, (self.sink,)).fetchone()
            if row is None or Writer(*row) != self._me:
                owner, forget = row and Writer(*row), self._forget_all(self._writers)
                raise transactions.fenced(self.sink, self._me, owner, self._writers, forget)
            yield connection

    @abstractmethod
    def row(self, record: Any) -> Any:
        """A record as `stage` takes it; raises UserFunctionError when it does not fit."""

    @abstractmethod
    def stage(self, connection: Any, tx: TransactionId, rows: Sequence[Any]) -> None: ...

    @abstractmethod
    def move(self, connection: Any, tx: TransactionId) -> int:
        """Move a transaction's rows from staging to the target; returns how many there were."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection; what is open is rolled back."""

    def key(self, tx: TransactionId) -> tuple[Any, ...]:
        """A transaction's name as the tables hold it."""
        return tx

    def named(self, key: Sequence[Any]) -> TransactionId:
        return TransactionId(*key)

    def encode(self, staged: StagedTransaction) -> bytes:
        """A transaction as the bytes that a checkpoint keeps."""
        return transactions.encode(staged)

    def decode(self, transaction: bytes) -> StagedTransaction:
        """Raises RestoreError for a transaction of another kind of sink."""
        return transactions.decode(self.sink, StagedTransaction, transaction)

    def ids(self, tokens: Iterable[bytes]) -> set[TransactionId]:
        """The transactions among those that checkpoints keep which this kind of sink wrote."""
        return {staged.tx for staged in transactions.those_of(StagedTransaction, tokens)}

    def staged(self, connection: Any) -> list[TransactionId]:
        """The transactions of this sink that have rows in staging."""
        return list(map(self.named, connection.execute(self._staged, (self.sink,)).fetchall()))

    def remove(self, connection: Any, tx: TransactionId) -> None:
        connection.execute(self._remove, self.key(tx))

    def committed(self, connection: Any, sink: str) -> list[TransactionId]:
        """The transactions of a sink that are recorded as committed, in order."""
        return sorted(map(self.named, connection.execute(self._committed, (sink,)).fetchall()))

    def record(self, connection: Any, tx: TransactionId) -> None:
        """Record that this transaction, and so all before it of the same start, are committed."""
        connection.execute(self._record, self.key(tx))

    def forget(self, connection: Any, tx: TransactionId) -> None:
        connection.execute(self._forget, self.key(tx))

    def _keys(self, table: str, columns: Sequence[str]) -> str:
        names = ", ".join(columns)
        return f"SELECT DISTINCT {names} FROM {table} WHERE {self.where(columns[:1])}"

    def _forget_all(self, table: str) -> str:
        sink = self.sink.replace("'", "''")
        return f"DELETE FROM {table} WHERE sink = '{sink}'"

    def _delete(self, table: str, columns: Sequence[str]) -> str:
        return f"DELETE FROM {table} WHERE {self.where(columns)}"

    @classmethod
    def where(cls, columns: Sequence[str]) -> str:
        """The condition that these columns have the values of the first parameters."""
        pairs = zip(columns, cls.marks, strict=False)
        return " AND ".join(f"{name} = {mark}" for name, mark in pairs)


class SqlStagingWriter(SinkWriter):
    """Writes the rows of one subtask; raises as `StagingTables.transaction`."""

    def __init__(self, tables: StagingTables, context: SinkContext) -> None:
        self._tables = tables
        self._context = context
        self._rows: list[Any] = []
        """The open transaction."""

    def recover(self, transactions: Sequence[bytes]) -> None:
        """Commit these; remove the other rows in staging that this subtask may abort.

        Raises ConfigError where a job begins and the table has rows of an earlier one, and
        ObjectNotFoundError where the database lacks what it had.
        """
        context, tables = self._context, self._tables
        if context.is_new_job:
            with tables.transaction() as connection:
                committed = tables.committed(connection, tables.sink)
            check_begins(context, tables.sink, committed, tables.forget_all)
        for transaction in transactions:
            self.commit(transaction)
        if context.retained_transactions is not None:
            referenced = tables.ids((*context.retained_transactions, *transactions))
            with tables.transaction() as connection:
                self._check_complete(connection, tables.ids(context.committed_transactions))
                self._remove_left_over(connection, referenced)

    def write(self, records: Sequence[Any]) -> None:
        """Add rows; raises UserFunctionError for one that does not fit the columns."""
        self._rows += map_all(self._tables.row, records)

    def pre_commit(self, checkpoint: CheckpointId) -> bytes | None:
        if not self._rows:
            return None
        tables = self._tables
        tx = TransactionId.of(self._context, checkpoint, tables.sink)
        with tables.transaction() as connection:
            tables.stage(connection, tx, self._rows)
        staged = StagedTransaction(tx, len(self._rows), tables.into)
        self._rows = []
        return tables.encode(staged)

    def commit(self, transaction: bytes) -> None:
        """Move the rows to the table.

        Raises ObjectNotFoundError when staging lost them, RestoreError when they were written
        for another table or other columns.
        """
        tables = self._tables
        staged = tables.decode(transaction)
        with tables.transaction() as connection:
            recorded = tables.committed(connection, staged.tx.sink)
            earlier = [tx for tx in recorded if tx.start == staged.tx.start]
            # Transactions of one start are committed in order: the newest speaks for all.
            if earlier and earlier[-1].checkpoint >= staged.tx.checkpoint:
                return
            if staged.into != tables.into:
                raise transactions.moved(str(staged.tx), staged.into, tables.into)
            rows = tables.move(connection, staged.tx)
            if rows != staged.rows:
                raise ObjectNotFoundError(
                    str(staged.tx),
                    expected=f"{plural(staged.rows, 'row')} in staging, or its checkpoint in "
                    "_tidelog_committed",
                    found=f"{plural(rows, 'row')} and no such checkpoint",
                    action="bring back the database that this job wrote to; to write to another "
                    f"one, {CLONE}",
                    retry_safe=False,
                )
            for tx in earlier:
                tables.forget(connection, tx)
            tables.record(connection, staged.tx)

    def close(self) -> None:
        self._rows = []
        self._tables.close()

    def _check_complete(self, connection: Any, settled: set[TransactionId]) -> None:
        """Whether the database has what was committed: a copy of an earlier day lacks some of it.
        What is in staging still belongs to a checkpoint that the job went on without.
        """
        tables = self._tables
        upto = {tx.start: tx.checkpoint for tx in tables.committed(connection, tables.sink)}
        staged = set(tables.staged(connection))
        transactions.check_there(
            tx
            for tx in settled
            if tx.sink == tables.sink
            and self._context.recovers_for(tx.subtask)
            and tx not in staged
            and tx.checkpoint > upto.get(tx.start, -1)
        )

    def _remove_left_over(self, connection: Any, referenced: set[TransactionId]) -> None:
        """Remove staged rows and records of commits that no checkpoint names any more."""
        tables, may_abort = self._tables, self._context.may_abort
        for tx in tables.staged(connection):
            if tx not in referenced and may_abort(tx.generation, tx.subtask):
                tables.remove(connection, tx)
        starts = {tx.start for tx in referenced}
        for tx in tables.committed(connection, tables.sink):
            if tx.start not in starts and may_abort(tx.generation, tx.subtask):
                tables.forget(connection, tx)
