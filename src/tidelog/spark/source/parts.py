"""Parts: what one task of Spark reads, mostly one stored object, and how it is read.

Invariants: a part can be pickled and says all that is needed to read it, so executors look nothing
up; together the parts of a plan have every row once; a store that is opened is closed again, also
when the reading of a part is given up half-way; a part whose object is gone is an error that says
how to go on, never a part without rows. Its Arrow batches have exactly the columns asked for, in
their order and of their types; a column is only computed when it is asked for, and one that a
layout does not have is null.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, Final, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.effects import Effects
from tidelog.errors import ObjectNotFoundError, RestoreError
from tidelog.spark.source.options import Intervals, SourceOptions
from tidelog.spark.source.views import ViewColumn
from tidelog.storage.open import PLAIN, StoreAccess
from tidelog.storage.port import ObjectStore

T = TypeVar("T")

Row = Mapping[str, Any]
Arrays = Mapping[str, Callable[[], pa.Array]]

ROWS: Final = 2048
"""Rows of a batch, where the source of them sets no other limit."""


@dataclass(frozen=True, slots=True)
class ReadSession:
    """An open store."""

    store: ObjectStore
    effects: Effects
    runner: asyncio.Runner

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of asynchronous work; raises what it raises."""
        return self.runner.run(work)


@contextmanager
def connected(url: str, access: StoreAccess = PLAIN) -> Iterator[ReadSession]:
    """The store at a URL; raises ConfigError for one that cannot be opened."""
    effects = Effects()
    with closing(effects.offload), asyncio.Runner() as runner:
        store = access.open(url, effects)
        try:
            yield ReadSession(store, effects, runner)
        finally:
            runner.run(store.close())


@dataclass(frozen=True)
class ReadRequest:
    options: SourceOptions
    columns: tuple[ViewColumn, ...]

    def asks_for(self, *names: str) -> bool:
        """Whether one of these columns is to be read."""
        return any(column.name in names for column in self.columns)

    def kept(self, rows: Iterable[Row]) -> list[Row]:
        """The rows that pass the filter; each has a value in all columns that narrow it."""
        names = self.options.view.narrowed_by
        passing: list[Row] = []
        for row in rows:
            values = {name: row[name] for name in names}
            if self.options.filter.accepts(**values):
                passing.append(row)
        return passing


class ReadPart(Protocol):
    """A share of a view."""

    @property
    def size(self) -> int:
        """Bytes that are read for it, roughly."""

    def read(self, request: ReadRequest, session: ReadSession) -> Iterator[pa.RecordBatch]:
        """The rows of the part; raises what the store raises, and the errors of what is damaged."""


@dataclass(frozen=True, slots=True)
class Listing:
    """Rows that are made one by one: of checkpoints, objects and blocks, not of records."""

    rows: Callable[[ObjectStore], Coroutine[Any, Any, list[Row]]]
    """A function of a module, or a partial of one, so that it can be pickled."""
    size: int = 0
    may_vanish: bool = False
    """Whether they are of an object that a running job may drop meanwhile: then there are none."""

    def read(self, request: ReadRequest, session: ReadSession) -> Iterator[pa.RecordBatch]:
        """The rows that pass the filter, in their order, in batches."""
        try:
            all_rows = session.run(self.rows(session.store))
        except ObjectNotFoundError:
            if not self.may_vanish:
                raise
            return
        rows = request.kept(all_rows)
        for start in range(0, len(rows), ROWS):
            yield from_rows(request.columns, rows[start : start + ROWS])


@contextmanager
def noticing_drops(url: str) -> Iterator[None]:
    """Within, an object of the store at `url` that is gone raises RestoreError with the reason."""
    try:
        yield
    except (ObjectNotFoundError, RestoreError) as error:
        if not any(isinstance(cause, ObjectNotFoundError) for cause in (error, error.__cause__)):
            raise
        raise RestoreError(
            f"{error.what} of {url}",
            expected="the object that was there when the load was planned",
            found="no such object: the running job has dropped it since, or it is lost",
            action="load again; to keep what is read for longer, let the job retain more "
            "checkpoints (`tidelog run --retain`); if it stays, `tidelog verify` says what is lost",
        ) from error


def schema(columns: Iterable[ViewColumn]) -> pa.Schema:
    """The Arrow schema that Spark expects for these columns."""
    types = {
        "bigint": pa.int64(),
        "int": pa.int32(),
        "string": pa.string(),
        "binary": pa.binary(),
        "boolean": pa.bool_(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "array<bigint>": pa.list_(pa.field("element", pa.int64())),
    }
    return pa.schema([pa.field(name, types[type_name]) for name, type_name in columns])


def from_rows(columns: Sequence[ViewColumn], rows: Sequence[Row]) -> pa.RecordBatch:
    """A batch of rows that are made one by one: of objects and blocks, not of records.

    Timestamps are microseconds since 1970; a value that a row does not name is null.
    """
    return pa.RecordBatch.from_pylist(list(rows), schema=schema(columns))


def from_arrays(columns: Sequence[ViewColumn], length: int, arrays: Arrays) -> pa.RecordBatch:
    """A batch of `length` rows from functions that make its columns."""
    fields = schema(columns)
    columns_of_batch = [
        arrays[field.name]().cast(field.type)
        if field.name in arrays
        else pa.nulls(length, field.type)
        for field in fields
    ]
    return pa.RecordBatch.from_arrays(columns_of_batch, schema=fields)


def constants(length: int, **values: int | str) -> Arrays:
    """Columns with the same value in every row."""
    return {name: partial(pa.repeat, value, length) for name, value in values.items()}


def where(batch: pa.RecordBatch, numbers: pa.Array, intervals: Intervals) -> pa.RecordBatch:
    """The rows whose number, in an array of its own, is wanted."""
    wide = numbers.cast(pa.int64())
    spans = [
        pc.and_(pc.greater_equal(wide, first), pc.less_equal(wide, last))
        for first, last in intervals.spans
    ]
    return batch.filter(reduce(pc.or_, spans, pa.repeat(False, len(wide))))
