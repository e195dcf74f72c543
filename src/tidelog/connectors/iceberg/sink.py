"""An Iceberg table as a sink, exactly once: data files are written first and added on commit.

Invariants: as `table` says; a record is in the batches of the open transaction, or in staged files,
or in the table.
"""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from threading import Lock
from typing import Any

from tidelog.connectors import transactions
from tidelog.connectors.arguments import typed
from tidelog.connectors.iceberg.staged import Staged, ids
from tidelog.connectors.iceberg.table import LakeTable
from tidelog.connectors.records import RowShape
from tidelog.connectors.transactions import TransactionId
from tidelog.errors import UserFunctionError, require
from tidelog.ids import CheckpointId
from tidelog.runtime.sink import Sink, SinkContext, SinkWriter
from tidelog.state.schema.row import Row

_Change = Callable[[Any], Any]


class Iceberg(Sink):
    """Appends records to an Iceberg table.

    `catalog` is the name of a catalogue that pyiceberg is configured for, or its properties, `name`
    among them; `table` is `namespace.name` and must exist. Rows with field names and dicts are
    taken by name, tuples by position. Rows are held in memory between checkpoints. Raises
    ConfigError.
    """

    @typed
    def __init__(self, catalog: str | Mapping[str, str], table: str) -> None:
        require("catalog", catalog, bool(catalog), "the name of a catalogue, or its properties")
        expected = "a namespace and a name, as in 'lake.counts'"
        require("table", repr(table), "." in (table or ""), expected)
        self._catalog = catalog if isinstance(catalog, str) else dict(catalog)
        self._table = table
        self._commits = _GroupCommit()

    def open(self, context: SinkContext) -> "IcebergWriter":
        """Raises ConfigError without the table, FencedError after a newer start, StorageErrors."""
        sink = f"{context.job}/{context.name}"
        table = LakeTable(self._catalog, self._table, sink, context.generation)
        return IcebergWriter(table, context, self._commits)


class IcebergWriter(SinkWriter):
    """Writes the data files of one subtask; raises as `LakeTable`."""

    def __init__(self, table: LakeTable, context: SinkContext, commits: "_GroupCommit") -> None:
        self._table = table
        self._context = context
        self._commits = commits
        self._columns = TableColumns(table.name, table.schema.as_arrow())
        self._batches: list[Any] = []
        """The open transaction."""

    def recover(self, transactions: Sequence[bytes]) -> None:
        table, may_abort = self._table, self._context.may_abort
        table.check_begins(self._context)
        for transaction in transactions:
            staged = table.directory.decode(transaction)
            table.check_files(staged)
            self._commits.commit(table, staged)
        if self._context.retained is not None:
            table.remove_left_over(ids((*self._context.retained, *transactions)), may_abort)

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
        self._waiting: list[tuple[tuple[str, int], Staged]] = []

    def commit(self, table: LakeTable, staged: Staged) -> None:
        """Add the files of a transaction to the table, and of others of its start that wait."""
        mine = (table.sink, table.generation), staged
        self._waiting.append(mine)
        with self._lock:
            if mine not in self._waiting:  # it was one of those others
                return
            group = [each for each in self._waiting if each[0] == mine[0]]
            done = [mine]
            try:
                table.commit([each for _, each in group])
                done = group
            finally:
                for each in done:
                    self._waiting.remove(each)


class TableColumns:
    """The columns of a table, by its Arrow schema.

    What was accepted can be written: every value fits the type of its column, and no column that
    must have a value lacks one.
    """

    def __init__(self, table: str, schema: Any) -> None:
        self._schema = schema
        optional = [field.name for field in schema if field.nullable]
        self._shape = RowShape(table, schema.names, "a value", optional)
        self._changes = [_change(field.type) for field in schema]

    def batch(self, records: Sequence[Any]) -> Any:
        """The records as a batch of Arrow; raises UserFunctionError for one that does not fit."""
        rows = [self._shape.values(record) for record in records]
        arrays = [
            self._array(field, change, [row[at] for row in rows])
            for at, (field, change) in enumerate(zip(self._schema, self._changes, strict=True))
        ]
        return import_module("pyarrow").RecordBatch.from_arrays(arrays, schema=self._schema)

    def _array(self, field: Any, change: _Change | None, values: list[Any]) -> Any:
        pa = import_module("pyarrow")
        refusals = (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError)
        if not field.nullable and None in values:
            raise self._refused(field, None)
        try:
            return pa.array(_changed(change, values), type=field.type)
        except refusals:
            for value in values:
                try:
                    pa.array(_changed(change, [value]), type=field.type)
                except refusals as error:
                    raise self._refused(field, value) from error
            raise

    def _refused(self, field: Any, value: Any) -> UserFunctionError:
        return UserFunctionError(
            f"a record for table {self._shape.table!r}, column {field.name!r}",
            expected=f"a value of type {field.type}" + ("" if field.nullable else ", required"),
            found=f"{value!r:.100}",
            action="change the record before the sink, or the type of the column",
        )


def _changed(change: _Change | None, values: list[Any]) -> list[Any]:
    return values if change is None else [None if v is None else change(v) for v in values]


def _change(kind: Any) -> _Change | None:
    """What makes of a value one that Arrow takes for a type; None: nothing need be done."""
    types = import_module("pyarrow").types
    if types.is_struct(kind):
        fields = [kind.field(at) for at in range(kind.num_fields)]
        inner = {field.name: _nested(field) for field in fields}
        return lambda value: _struct(inner, value)
    if types.is_map(kind):
        of_key, of_item = _nested(kind.key_field), _nested(kind.item_field)
        return lambda value: list(
            zip(of_key(list(value)), of_item(list(dict(value).values())), strict=True)
        )
    if types.is_list(kind) or types.is_large_list(kind):
        if kind.value_field.nullable and _change(kind.value_type) is None:
            return None
        of = _nested(kind.value_field)
        return lambda value: of(list(value))
    return None


def _nested(field: Any) -> Callable[[list[Any]], list[Any]]:
    """What makes of values within others those that Arrow takes, which it would let lack some."""
    change, nullable = _change(field.type), field.nullable

    def changed(values: list[Any]) -> list[Any]:
        if not nullable and None in values:
            raise TypeError(f"{field.name!r} is required")
        return _changed(change, values)

    return changed


def _struct(fields: dict[str, Callable[[list[Any]], list[Any]]], value: Any) -> dict[str, Any]:
    if isinstance(value, Row):
        value = value.asDict()
    if not isinstance(value, dict) or not value.keys() <= fields.keys():
        raise TypeError(f"expected the fields {tuple(fields)}")
    return {name: of([value.get(name)])[0] for name, of in fields.items()}
