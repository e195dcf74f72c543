"""Parts: what one task of Spark reads, mostly one stored object, and how it is read.

Invariants: a part can be pickled and says all that is needed to read it, so executors look nothing
up; together the parts of a plan have every row once; a store that is opened is closed again, also
when the reading of a part is given up half-way; a part whose object is gone is an error that says
how to go on, never a part without rows.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from tidelog.effects import Effects
from tidelog.errors import ObjectNotFoundError, RestoreError
from tidelog.spark.source import frames
from tidelog.spark.source.frames import Row
from tidelog.spark.source.options import Options
from tidelog.spark.source.views import ViewColumn
from tidelog.storage.open import PLAIN, StoreAccess
from tidelog.storage.port import ObjectStore

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Session:
    """An open store."""

    store: ObjectStore
    effects: Effects
    runner: asyncio.Runner

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of asynchronous work; raises what it raises."""
        return self.runner.run(work)


@contextmanager
def connected(url: str, access: StoreAccess = PLAIN) -> Iterator[Session]:
    """The store at a URL; raises ConfigError for one that cannot be opened."""
    effects = Effects()
    with closing(effects.offload), asyncio.Runner() as runner:
        store = access.open(url, effects)
        try:
            yield Session(store, effects, runner)
        finally:
            runner.run(store.close())


@dataclass(frozen=True)
class ReadRequest:
    options: Options
    columns: tuple[ViewColumn, ...]

    def asks_for(self, *names: str) -> bool:
        """Whether one of these columns is to be read."""
        return any(column.name in names for column in self.columns)

    def kept(self, rows: Iterable[Row]) -> list[Row]:
        """The rows that pass the filter; each has a value in all columns that narrow it."""
        names = self.options.view.narrowed_by
        accepts = self.options.filter.accepts
        return [row for row in rows if accepts(**{name: row[name] for name in names})]


class ReadPart(Protocol):
    """A share of a view."""

    @property
    def size(self) -> int:
        """Bytes that are read for it, roughly."""
        ...

    def read(self, request: ReadRequest, session: Session) -> Iterator[pa.RecordBatch]:
        """The rows of the part; raises what the store raises, and the errors of what is damaged."""
        ...


@dataclass(frozen=True, slots=True)
class Listing:
    """Rows that are made one by one: of checkpoints, objects and blocks, not of records."""

    rows: Callable[[ObjectStore], Coroutine[Any, Any, list[Row]]]
    """A function of a module, or a partial of one, so that it can be pickled."""
    size: int = 0
    may_vanish: bool = False
    """Whether they are of an object that a running job may drop meanwhile: then there are none."""

    def read(self, request: ReadRequest, session: Session) -> Iterator[pa.RecordBatch]:
        """The rows that pass the filter, in their order, in batches."""
        try:
            found = session.run(self.rows(session.store))
        except ObjectNotFoundError:
            if not self.may_vanish:
                raise
            return
        rows = request.kept(found)
        for at in range(0, len(rows), frames.ROWS):
            yield frames.from_rows(request.columns, rows[at : at + frames.ROWS])


@contextmanager
def noticing_drops(url: str) -> Iterator[None]:
    """Within, an object of the store at `url` that is gone raises RestoreError with the reason."""
    try:
        yield
    except (ObjectNotFoundError, RestoreError) as error:
        if not any(isinstance(each, ObjectNotFoundError) for each in (error, error.__cause__)):
            raise
        raise RestoreError(
            f"{error.what} of {url}",
            expected="the object that was there when the load was planned",
            found="no such object: the running job or query has dropped it since, or it is lost",
            action="load again; to keep what is read for longer, let the job retain more "
            "checkpoints (`tidelog run --retain`), or the query more batches "
            "(spark.sql.streaming.minBatchesToRetain); if it stays, `tidelog verify` tells what "
            "is lost",
        ) from error
