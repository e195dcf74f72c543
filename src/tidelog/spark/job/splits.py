"""A source of one's own as a stream of Spark: batches are ranges of its splits.

Only a reader knows the position after its records, so the process in which Spark plans a source
reads ahead, and forgets the records: a batch is, of each split, a position and a number of records.
Executors open the split there and read so many.

Invariants: an offset has of each split what a manifest has, and how many records were read in all;
so a batch that is repeated has the same records, however a reader divides them among reads. An
offset moves with records or with the end of a split alone.
"""

from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from tidelog.connectors.program.sources import PushSource
from tidelog.effects import Clock, SystemClock
from tidelog.errors import RestoreError
from tidelog.runtime.source import Source, SplitReader
from tidelog.runtime.tasks.split_reading import IDLE_S
from tidelog.runtime.user_code import user_code
from tidelog.spark.handover.document import SplitPosition
from tidelog.spark.handover.sources import SOURCE, SPLITS, stored_splits
from tidelog.spark.job.frames import SourceFrame
from tidelog.spark.job.plan import refused
from tidelog.state.objects.values import ObjectEncoding

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

RANGE_SCHEMA: Final = "split string, position binary, records bigint, ended boolean"
_PATIENCE_S: Final = 60.0
"""How long an executor waits for a record that was there when the batch was planned."""


class OwnSource(NamedTuple):
    """A source of a job, and how much of it a batch reads; travels to executors."""

    name: str
    source: Source
    records_per_batch: int | None = None
    """The most records of a split in a batch."""

    def encoding(self) -> ObjectEncoding:
        return ObjectEncoding(f"positions of source {self.name!r}")


@dataclass(slots=True)
class _Split:
    """A split while it is read ahead."""

    position: Any
    records: int = 0
    """How many were read since the query has started."""
    is_ended: bool = False
    reader: SplitReader | None = None
    due_at: float = -inf


class ReadAhead:
    """Plans the batches of a source: in a process that Spark keeps as long as the query runs."""

    def __init__(
        self, read_source: OwnSource, offset: Mapping[str, Any] | None, clock: Clock | None = None
    ) -> None:
        """`offset` is how far the query has read; None: it begins, with all splits there are.

        Raises what the source raises.
        """
        self._source = read_source
        self._clock = clock or SystemClock()
        self._encoding = read_source.encoding()
        self._discovered_at = -inf
        self._splits: dict[str, _Split] = {}
        for name, (data, records) in (offset or {}).get(SPLITS, {}).items():
            split_position = _decoded(self._encoding, data)
            self._splits[name] = _Split(split_position.position, records, split_position.is_ended)
        ended_splits = [name for name, split in self._splits.items() if split.is_ended]
        names = self._discover(None if offset is None else read_source.source.new_split_position)
        with user_code(read_source.name):
            for name in names.intersection(ended_splits):
                split = self._splits[name]
                split.is_ended = not read_source.source.has_more(name, split.position)

    def latest(self) -> dict[str, Any]:
        """Read on what is there; the offset after it."""
        every = self._source.source.rediscover_s
        if every is not None and self._clock.monotonic() - self._discovered_at >= every:
            self._discover(self._source.source.new_split_position)
        open_splits = [name for name, split in self._splits.items() if not split.is_ended]
        with user_code(self._source.name):
            for name in open_splits[: self._source.source.max_active_splits]:
                self._advance(name, self._splits[name])
        return self.offset()

    def offset(self) -> dict[str, Any]:
        """How far the source is read."""
        splits: dict[str, tuple[str, int]] = {}
        for name, split in sorted(self._splits.items()):
            data = _encoded(self._encoding, split.position, is_ended=split.is_ended)
            splits[name] = data, split.records
        return {SOURCE: self._source.name, SPLITS: splits}

    def close(self) -> None:
        for split in self._splits.values():
            if split.reader is not None:
                split.reader.close()
        self._source.source.close()

    def _discover(self, position: Any) -> set[str]:
        """All splits there are; new ones begin at a position."""
        with user_code(self._source.name):
            names = list(self._source.source.discover())
        for name in names:
            self._splits.setdefault(name, _Split(position))
        self._discovered_at = self._clock.monotonic()
        return set(names)

    def _advance(self, name: str, split: _Split) -> None:
        if self._clock.monotonic() < split.due_at:
            return
        if split.reader is None:
            split.reader = self._source.source.open(name, split.position)
        limit = self._source.records_per_batch or inf
        end = split.records + limit
        while split.records < end:
            records = split.reader.read()
            if records:
                split.position, split.records = split.reader.position, split.records + len(records)
            if records is None or split.reader.at_end:
                split.is_ended = True
                split.reader.close()
                split.reader = None
                return
            if not records:
                split.due_at = self._clock.monotonic() + (split.reader.delay_s or IDLE_S)
                return


def _encoded(encoding: ObjectEncoding, position: Any, *, is_ended: bool = False) -> str:
    """How far a split is read, as an offset has it."""
    return b64encode(encoding.encode([is_ended, position])).decode()


def _decoded(encoding: ObjectEncoding, data: str) -> SplitPosition:
    return SplitPosition(*encoding.decode(b64decode(data)))


class Range(NamedTuple):
    """The records of a split in a batch, as a row of `RANGE_SCHEMA`."""

    split: str
    position: bytes
    records: int
    is_ended: bool


def ranges(read_source: OwnSource, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[Range]:
    """What lies between two offsets."""
    encoding = read_source.encoding()
    # Splits that are there from the beginning begin at their start.
    first = read_source.source.new_split_position if start[SPLITS] is not None else None
    new, start_splits = _encoded(encoding, first), start[SPLITS] or {}
    parts: list[Range] = []
    for split, (data, records) in end[SPLITS].items():
        start_data, start_records = start_splits.get(split, (new, 0))
        was_ended = _decoded(encoding, start_data).is_ended
        is_ended = _decoded(encoding, data).is_ended
        if records > start_records or is_ended > was_ended:
            position = b64decode(start_data)
            parts.append(Range(split, position, records - start_records, is_ended))
    return parts


class RangeReader:
    """Reads ranges as the embedded source does; each range is a task of Spark."""

    def __init__(self, read_source: OwnSource, clock: Clock | None = None) -> None:
        self.ended: list[str] = []
        self._source = read_source
        self._clock = clock

    def read(self, batch: pa.RecordBatch) -> Iterator[tuple[str, list[Any]]]:
        """Raises what the source raises, and RestoreError where it has fewer records."""
        encoding, clock = self._source.encoding(), self._clock or SystemClock()
        for row in batch.to_pylist():
            split, count = row["split"], row["records"]
            self.ended += [split] if row["ended"] else []
            position = encoding.decode(row["position"])[1]
            with user_code(self._source.name):
                reader = self._source.source.open(split, position)
                try:
                    yield split, []
                    what = f"split {split!r} of source {self._source.name!r}"
                    for records in _exactly(count, reader, clock, what):
                        yield split, records
                finally:
                    reader.close()


def _exactly(count: int, reader: SplitReader, clock: Clock, what: str) -> Iterator[list[Any]]:
    """So many records of a reader."""
    left, deadline = count, clock.monotonic() + _PATIENCE_S
    while left:
        records = reader.read()
        if records:
            yield records[:left]
            left -= min(left, len(records))
            deadline = clock.monotonic() + _PATIENCE_S
        elif records is None or clock.monotonic() >= deadline:
            raise RestoreError(
                what,
                expected=f"{count} records after the position, as when the batch was planned",
                found=f"{count - left}",
                action="let the source give the same records after a position every time, as the "
                "port `Source` says; then start the query again",
            )
        else:
            clock.hand_over(reader.delay_s or IDLE_S)


def own_frame(
    spark: "SparkSession",
    read_source: OwnSource,
    begin: Mapping[str, Any] | None,
    offset: Mapping[str, Any] | None,
) -> SourceFrame:
    """A source as a stream that goes on at an offset; `begin` is where the query has begun, which
    Spark asks for again until the first batch is committed. None: at the start of the source.

    Raises ConfigError for a source that Spark cannot read, and RestoreError for one that cannot go
    on there.
    """
    from pyspark import cloudpickle  # noqa: PLC0415  (heavy)

    source = read_source.source
    what = f"source {read_source.name!r}, a {type(source).__name__}"
    waits = isinstance(source, PushSource) or (source.blocking and not source.reads_without_waiting)
    if waits:
        raise refused(
            what,
            "one that says what there is now, which Spark asks for before each batch",
            "a source that records are pushed to, or that waits for them in `read`",
            "let `read` return [] where nothing is there, and set `reads_without_waiting`; or "
            "write its records to a topic or to files, or pass a data frame to run_operator",
        )
    try:
        cloudpickle.dumps(read_source)  # type: ignore[no-untyped-call]
    except Exception as error:  # whatever a class of the user's raises
        raise refused(
            what,
            "one that executors get by pickle",
            f"{type(error).__name__}: {error}",
            "open connections and files in `open`, and not where the source is made",
        ) from error
    with user_code(read_source.name):
        if offset is None:
            splits: dict[str, int | None] = dict.fromkeys(source.discover())
            source.close()
        else:
            splits = _checked(read_source, offset)
    kind = _data_source(read_source, begin, offset)
    spark.dataSource.register(kind)
    frame = spark.readStream.format(kind.name()).load()
    return SourceFrame(frame, RangeReader(read_source), splits)


def _checked(read_source: OwnSource, offset: Mapping[str, Any]) -> dict[str, int | None]:
    """The splits that have not ended, with their greatest event time; raises RestoreError."""
    encoding, splits = read_source.encoding(), dict[str, int | None]()
    for name, data in stored_splits(offset).items():
        split = SplitPosition(*encoding.decode(data))
        read_source.source.check_position(name, split.position)
        if not split.is_ended:
            splits[name] = split.latest
    return splits


def _data_source(
    read_source: OwnSource, begin: Mapping[str, Any] | None, offset: Mapping[str, Any] | None
) -> type["DataSource"]:
    """A data source of PySpark for one source of a job."""
    from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition  # noqa: PLC0415  (heavy)

    class Reader(DataSourceStreamReader):
        def __init__(self) -> None:
            self._ahead: ReadAhead | None = None
            self._committed: dict[str, bytes] = {}

        def initialOffset(self) -> dict[str, Any]:
            return {SOURCE: read_source.name, SPLITS: None} if begin is None else dict(begin)

        def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # as in Spark 4.1
            return self._planner().latest()

        def partitions(self, start: Any, end: Any) -> Sequence[InputPartition]:
            return [InputPartition(tuple(part)) for part in ranges(read_source, start, end)]

        def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
            yield partition.value

        def commit(self, end: Any) -> None:
            encoding, splits = read_source.encoding(), stored_splits(end)
            changed = dict(splits.items() - self._committed.items())
            positions = {split: encoding.decode(data)[1] for split, data in changed.items()}
            self._committed = splits
            with user_code(read_source.name):
                read_source.source.on_checkpoint_complete(positions)

        def stop(self) -> None:
            if self._ahead is not None:
                self._ahead.close()

        def _planner(self) -> ReadAhead:
            if self._ahead is None:
                self._ahead = ReadAhead(read_source, offset)
            return self._ahead

    class OwnDataSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return f"tidelog-{read_source.name}"

        def schema(self) -> str:
            return RANGE_SCHEMA

        def streamReader(self, schema: Any) -> DataSourceStreamReader:
            return Reader()

    return OwnDataSource
