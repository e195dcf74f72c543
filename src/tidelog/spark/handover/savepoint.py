"""A stored checkpoint that a Spark query begins with: its operators, and their rows.

Invariants: nothing is written; the checkpoint has no records in flight, and its job can go on; rows
are read by the data source, so by the restore that a job makes, which checks every byte.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa

from tidelog.catalog.locate import find, parse_origin
from tidelog.checkpoint.manifest import Checkpoint, OperatorState
from tidelog.errors import RestoreError
from tidelog.runtime.restore.after_end import before_end
from tidelog.spark.checkpoint.checkpoint import store_url
from tidelog.spark.source.options import read_options
from tidelog.spark.source.parts import ReadRequest, connected
from tidelog.spark.source.planning import plan
from tidelog.spark.source.views import chosen
from tidelog.state.event_time import UNKNOWN, EventTime
from tidelog.storage.open import PLAIN, StoreAccess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SPLITS: Final = "splits"
"""The kind of the state with the positions of a source."""


@dataclass(frozen=True, slots=True)
class StoredSavepoint:
    """A checkpoint in the store at `url`."""

    url: str
    checkpoint: Checkpoint
    access: StoreAccess = PLAIN
    has_ended: bool = False
    """The job ended with it; the checkpoint is the state before that, from which it can go on."""

    def frame(self, spark: "SparkSession", operator: str, *columns: str) -> "DataFrame":
        """Columns of the view `state` of an operator; executors restore one subtask per task."""
        from tidelog.spark.source.datasource import TidelogDataSource  # noqa: PLC0415  (pyspark)

        spark.dataSource.register(TidelogDataSource)
        options = self._options(operator, columns)
        return spark.read.format("tidelog").options(**options).load()

    def batches(self, operator: str, *columns: str) -> Iterator[pa.RecordBatch]:
        """The same rows, read here: for an operator with few of them."""
        options = read_options(self._options(operator, columns))
        request = ReadRequest(options, chosen(options.view, columns, decode=False))
        with connected(self.url, self.access) as session:
            for part in session.run(plan(session.store, request)):
                yield from part.read(request, session)

    def splits(self, source: str) -> dict[str, bytes]:
        """What is stored of each split of a source, encoded."""
        (operator,) = (o for o in self.checkpoint.operators if o.id == source)
        ids = {info.id for info in operator.states if info.kind == SPLITS}
        splits: dict[str, bytes] = {}
        for batch in self.batches(source, "state_id", "key", "value"):
            for state, key, value in zip(*map(pa.Array.to_pylist, batch.columns), strict=True):
                if state in ids:
                    splits[msgspec.msgpack.decode(key, type=str)] = value
        return splits

    def _options(self, operator: str, columns: tuple[str, ...]) -> Mapping[str, str]:
        options: dict[str, Any] = {
            "path": self.url,
            "view": "state",
            "checkpoint": str(self.checkpoint.slot),
            "operator": operator,
            "columns": ",".join(columns),
            "endpoint": self.access.endpoint,
            "encryptionKey": self.access.encryption_key,
            "beforeEnd": "true" if self.has_ended else None,
        }
        return {name: value for name, value in options.items() if value is not None}


def read_savepoint(origin: str, access: StoreAccess = PLAIN) -> StoredSavepoint:
    """The checkpoint that `URL@NAME`, `URL@N` or `URL@latest` names.

    Raises ConfigError and ObjectNotFoundError where there is none, what the store raises, and
    RestoreError for one that a query cannot begin with.
    """
    where = parse_origin(origin)
    url = store_url(where.url)
    with connected(url, access) as session:
        checkpoint = session.run(find(session.store, where.checkpoint))
    has_ended = checkpoint.final and bool(checkpoint.before_end)
    if has_ended:
        checkpoint = before_end(checkpoint)
    _check(url, checkpoint)
    return StoredSavepoint(url, checkpoint, access, has_ended)


def event_time_of(operator: OperatorState) -> EventTime:
    """Event time up to which the operator has dropped what is late, by key group.

    The newest watermark decides what is late, also while the timers of that one still fire.
    """
    times: dict[int, int] = {}
    for subtask in operator.subtasks:
        event_time = EventTime.restored(subtask.watermark, subtask.ahead)
        if subtask.advancing is not None:
            event_time.advance(subtask.advancing)
        groups = range(subtask.first_key_group, subtask.last_key_group + 1)
        for group in groups:
            times[group] = event_time.ahead.get(group, event_time.watermark)
    minimum = min(times.values(), default=UNKNOWN)
    return EventTime(minimum, {group: time for group, time in times.items() if time > minimum})


def _check(url: str, checkpoint: Checkpoint) -> None:
    what = f"checkpoint {checkpoint.slot} of {url}"
    if checkpoint.final:
        raise RestoreError(
            what,
            expected="a checkpoint of a job that can go on",
            found="that of a job whose data has ended, without the state before the end",
            action="run the job without --finish-once, and drain it into a native savepoint alone: "
            "then the state before the end is there, too",
        )
    buffers = 0
    for _, subtask in checkpoint.subtasks():
        buffers += 0 if subtask.in_flight is None else subtask.in_flight.buffers
    if buffers:
        raise RestoreError(
            what,
            expected="a checkpoint without records in flight, which Spark could not take over",
            found=f"{buffers} buffers of them",
            action="take a savepoint, which never has any: `tidelog stop --savepoint NAME`",
        )
