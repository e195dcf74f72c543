"""An Iceberg table as a sink, exactly once: data files are written first and added on commit.

Invariants: as `table` says; a record is in the batches of the open transaction, or in staged files,
or in the table.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from threading import Lock
from typing import Any, Final

from tidelog.connectors import transactions
from tidelog.connectors.arguments import typed
from tidelog.connectors.iceberg.columns import TableColumns
from tidelog.connectors.iceberg.staged import Staged, ids
from tidelog.connectors.iceberg.table import LakeTable
from tidelog.connectors.transactions import TransactionId, Writer
from tidelog.errors import require
from tidelog.ids import CheckpointId
from tidelog.runtime.sink import Sink, SinkContext, SinkWriter

ANSWER_S: Final = 300.0


class IcebergSink(Sink):
    """Appends records to an Iceberg table.

    `catalog` is the name of a catalogue that pyiceberg is configured for, or its properties, `name`
    among them; `table` is `namespace.name` and must exist. Rows with field names and dicts are
    taken by name, tuples by position. Rows are held in memory between checkpoints. A commit, or
    the files of a checkpoint, may take `answer_s`. Raises ConfigError.
    """

    @typed
    def __init__(
        self, catalog: str | Mapping[str, str], table: str, *, answer_s: float = ANSWER_S
    ) -> None:
        require("answer_s", answer_s, answer_s > 0, "more than 0 seconds")
        self._answer_s = answer_s
        require("catalog", catalog, bool(catalog), "the name of a catalogue, or its properties")
        expected = "a namespace and a name, as in 'lake.counts'"
        require("table", repr(table), "." in (table or ""), expected)
        self._catalog = catalog if isinstance(catalog, str) else dict(catalog)
        self._table = table
        self._commits = _GroupCommit()

    def open(self, context: SinkContext) -> "IcebergWriter":
        """Raises ConfigError without the table, FencedError after a newer start, StorageErrors."""
        sink = f"{context.job}/{context.name}"
        me = Writer.of(context)
        table = LakeTable(self._catalog, self._table, sink, me, self._answer_s)
        return IcebergWriter(table, context, self._commits)


class IcebergWriter(SinkWriter):
    """Writes the data files of one subtask; raises as `LakeTable`."""

    def __init__(self, table: LakeTable, context: SinkContext, commits: "_GroupCommit") -> None:
        self._table = table
        self._context = context
        self._commits = commits
        self._columns = TableColumns(table.name, table.schema.as_arrow(), table.partitioned)
        self._batches: list[Any] = []
        """The open transaction."""

    def recover(self, transactions: Sequence[bytes]) -> None:
        table, may_abort = self._table, self._context.may_abort
        table.check_begins(self._context)
        for transaction in transactions:
            staged = table.directory.decode(transaction)
            table.check_files(staged)
            self._commits.commit(table, staged)
        recovers_for = self._context.recovers_for
        settled = ids(self._context.committed_transactions)
        expected = {tx for tx in settled if tx.sink == table.sink and recovers_for(tx.subtask)}
        if expected:
            table.check_complete(expected)
        if self._context.retained_transactions is not None:
            table.remove_left_over(
                ids((*self._context.retained_transactions, *transactions)), may_abort
            )

    def write(self, records: Sequence[Any]) -> None:
        """Add records; raises UserFunctionError for one that does not fit the columns."""
        if records:
            self._batches.append(self._columns.batch(records))

    def pre_commit(self, checkpoint: CheckpointId) -> bytes | None:
        if not self._batches:
            return None
        tx = TransactionId.of(self._context, checkpoint, self._table.sink)
        data = import_module("pyarrow").Table.from_batches(self._batches)
        staged = self._table.write(tx, data.combine_chunks())
        self._batches = []
        return transactions.encode(staged)

    def commit(self, transaction: bytes) -> None:
        self._commits.commit(self._table, self._table.directory.decode(transaction))

    def close(self) -> None:
        self._batches = []
        self._table.close()


class _GroupCommit:
    """Transactions of several subtasks that are ready at the same time share a snapshot."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._waiting: list[tuple[tuple[str, Writer], Staged]] = []

    def commit(self, table: LakeTable, staged: Staged) -> None:
        """Add the files of a transaction to the table, and of others of its start that wait."""
        entry = (table.sink, table.me), staged
        self._waiting.append(entry)
        with self._lock:
            if entry not in self._waiting:  # it was one of those others
                return
            group = [member for member in self._waiting if member[0] == entry[0]]
            done = [entry]
            try:
                table.commit([transaction for _, transaction in group])
                done = group
            finally:
                for finished in done:
                    self._waiting.remove(finished)
