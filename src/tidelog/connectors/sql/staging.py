"""Exactly once into a table of a database: two-phase commit through a staging table.

Invariants: `pre_commit` stores rows in a staging table of the same database; one transaction of
the database moves them to the target and records the checkpoint in `_tidelog_committed`; so a row
is in one of the two tables, and no transaction moves twice. For each start of the job only the
newest commit is recorded, for as long as a retained checkpoint names one of that start.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import msgspec

from tidelog.connectors import transactions
from tidelog.connectors.transactions import Start, TransactionId
from tidelog.errors import ObjectNotFoundError
from tidelog.ids import CheckpointId
from tidelog.runtime.sink import SinkContext, SinkWriter
from tidelog.runtime.user_code import map_all


class Staged(msgspec.Struct, frozen=True, array_like=True):
    """A pre-committed transaction: how many rows it has in staging, and where they go."""

    tx: TransactionId
    rows: int
    into: str
    """The statement that fills the target."""


class StagingTables(ABC):
    """The tables of one sink in its database; `connection` is that of an open `transaction`."""

    def __init__(self, sink: str, into: str) -> None:
        self.sink = sink
        """The sink's name in the tables that all sinks of a database share; see `sink_name`."""
        self.into = into
        """The statement that fills the target; it changes with the table and its columns."""

    @abstractmethod
    def transaction(self) -> AbstractContextManager[Any]:
        """A transaction of the database, all or nothing; raises errors of `tidelog.errors`."""

    @abstractmethod
    def row(self, record: Any) -> Any:
        """A record as `stage` takes it; raises UserFunctionError when it does not fit."""

    @abstractmethod
    def stage(self, connection: Any, tx: TransactionId, rows: Sequence[Any]) -> None:
        """Add rows to the staging table."""

    @abstractmethod
    def move(self, connection: Any, tx: TransactionId) -> int:
        """Move a transaction's rows from staging to the target; returns how many there were."""

    @abstractmethod
    def record(self, connection: Any, tx: TransactionId) -> None:
        """Record that this transaction, and all before it of the same start, are committed."""

    @abstractmethod
    def committed_upto(self, connection: Any, start: Start) -> int | None:
        """The newest checkpoint that is recorded as committed."""

    @abstractmethod
    def staged(self, connection: Any) -> Iterable[TransactionId]:
        """The transactions of this sink that have rows in staging."""

    @abstractmethod
    def remove(self, connection: Any, tx: TransactionId) -> None:
        """Delete a transaction's rows from staging."""

    @abstractmethod
    def committed(self, connection: Any) -> Iterable[Start]:
        """The starts of this sink whose commits are recorded."""

    @abstractmethod
    def forget(self, connection: Any, start: Start) -> None:
        """Delete what is recorded of a start's commits."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection; what is open is rolled back."""

    def encode(self, staged: Staged) -> bytes:
        """A transaction as the bytes that a checkpoint keeps."""
        return transactions.encode(staged)

    def decode(self, transaction: bytes) -> Staged:
        """Raises RestoreError for a transaction of another kind of sink."""
        return transactions.decode(self.sink, Staged, transaction)

    def ids(self, kept: Iterable[bytes]) -> set[TransactionId]:
        """The transactions among those that checkpoints keep which this kind of sink wrote."""
        return {staged.tx for staged in transactions.those_of(Staged, kept)}


class StagingWriter(SinkWriter):
    """Writes the rows of one subtask; raises as `StagingTables.transaction`."""

    def __init__(self, tables: StagingTables, context: SinkContext) -> None:
        self._tables = tables
        self._context = context
        self._rows: list[Any] = []
        """The open transaction."""

    def recover(self, transactions: Sequence[bytes]) -> None:
        """Commit these; remove the other rows in staging that this subtask may abort."""
        for transaction in transactions:
            self.commit(transaction)
        if self._context.retained is not None:
            named = self._tables.ids((*self._context.retained, *transactions))
            with self._tables.transaction() as connection:
                self._remove_left_over(connection, named)

    def write(self, records: Sequence[Any]) -> None:
        """Add rows; raises UserFunctionError for one that does not fit the columns."""
        self._rows += map_all(self._tables.row, records)

    def pre_commit(self, checkpoint: CheckpointId) -> bytes | None:
        """Put the rows into staging."""
        if not self._rows:
            return None
        context = self._context
        tx = TransactionId(
            self._tables.sink, context.subtask, context.generation, context.attempt, checkpoint
        )
        with self._tables.transaction() as connection:
            self._tables.stage(connection, tx, self._rows)
        staged = Staged(tx, len(self._rows), self._tables.into)
        self._rows = []
        return self._tables.encode(staged)

    def commit(self, transaction: bytes) -> None:
        """Move the rows to the table.

        Raises ObjectNotFoundError when staging lost them, RestoreError when they were written
        for another table or other columns.
        """
        tables = self._tables
        staged = tables.decode(transaction)
        with tables.transaction() as connection:
            # Transactions of one start are committed in order: the newest speaks for all.
            upto = tables.committed_upto(connection, staged.tx.start)
            if upto is not None and upto >= staged.tx.checkpoint:
                return
            if staged.into != tables.into:
                raise transactions.moved(str(staged.tx), staged.into, tables.into)
            rows = tables.move(connection, staged.tx)
            if rows != staged.rows:
                raise _lost(staged, rows)
            tables.record(connection, staged.tx)

    def close(self) -> None:
        """Close the connection; what was not pre-committed is gone."""
        self._rows = []
        self._tables.close()

    def _remove_left_over(self, connection: Any, named: set[TransactionId]) -> None:
        """Remove staged rows and records of commits that no checkpoint names any more."""
        tables, may_abort = self._tables, self._context.may_abort
        for tx in tables.staged(connection):
            if tx not in named and may_abort(tx.generation, tx.subtask):
                tables.remove(connection, tx)
        starts = {tx.start for tx in named}
        for start in tables.committed(connection):
            if start not in starts and may_abort(start.generation, start.subtask):
                tables.forget(connection, start)


def _lost(staged: Staged, found: int) -> ObjectNotFoundError:
    return ObjectNotFoundError(
        str(staged.tx),
        expected=f"{staged.rows} rows in staging, or its checkpoint in _tidelog_committed",
        found=f"{found} rows and no such checkpoint",
        action="bring back the database that this job wrote to",
        retry_safe=False,
    )
