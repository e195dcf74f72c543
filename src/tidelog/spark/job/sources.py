"""A job's sources as Spark reads them: Spark plans which input is of a batch, and its executors
make the records as the embedded source makes them.

Invariants: the records of a split are those of the embedded source, in their order; a source that
Spark cannot read again after a failure is refused.
"""

import copy
import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

import msgspec
import pyarrow as pa

from tidelog.connectors.files.source import InputFiles
from tidelog.connectors.kafka.reading.records import Decoder
from tidelog.connectors.kafka.reading.source import KafkaSource
from tidelog.errors import ConfigError
from tidelog.runtime.node import Node
from tidelog.spark.handover.document import Handover, Positions, QueryDirectory
from tidelog.spark.handover.sources import offset_at, offset_of
from tidelog.spark.job.frames import SourceFrame
from tidelog.spark.job.plan import refused
from tidelog.spark.job.splits import OwnSource, own_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_EARLIEST: Final = -2
_FILE: Final = "path string, modificationTime timestamp, length bigint, content binary"
_KAFKA_NAMES: Final = {"sasl.mechanisms": "sasl.mechanism"}
"""Settings that Kafka's client for Java has under another name than librdkafka."""
_KAFKA_SETTINGS: Final = frozenset(
    {"security.protocol", "sasl.mechanism", "fetch.min.bytes", "client.id", "isolation.level"}
)
"""Settings that mean the same in both."""
_USER: Final = ("sasl.username", "sasl.password")


class SourceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How Spark reads a job's sources."""

    files_per_batch: int | None = None
    """The most files of a source in a batch."""
    messages_per_batch: int | None = None
    """The most messages of a source of Kafka in a batch."""
    records_per_batch: int | None = 1 << 20
    """Most records of a split in a batch, of your own sources; None, or `available_now`: all."""
    kafka: Mapping[str, str] = {}
    """Options of Spark's source for Kafka besides, such as `kafka.ssl.truststore.location`."""


def source_frame(
    spark: "SparkSession",
    node: Node,
    options: SourceOptions,
    handover: Handover | None,
    directory: QueryDirectory,
) -> SourceFrame:
    """A source of a job as a stream, which goes on with what the job or the query has read.

    Raises ConfigError for one that Spark cannot read, and what the source raises.
    """
    splits = {} if handover is None else handover.splits.get(node.id, {})
    positions = handover.positions(node.id) if handover is not None and splits else {}
    source = node.source
    if isinstance(source, InputFiles):
        return _files(spark, source, options, positions)
    if isinstance(source, KafkaSource):
        return _topics(spark, source, options, positions)
    assert source is not None
    begin = offset_at(node.id, splits) if splits else None
    offset = offset_of(directory.offsets(), node.id) or begin
    return own_frame(spark, OwnSource(node.id, source, options.records_per_batch), begin, offset)


def _files(
    spark: "SparkSession", source: InputFiles, options: SourceOptions, positions: Positions
) -> SourceFrame:
    if not source.root.exists():
        source.discover()  # raises the error that says so
    # Spark's source of any files: it lists them and, of a column that is not asked for, reads none.
    reader = (
        spark.readStream.format("binaryFile").schema(_FILE).option("recursiveFileLookup", "true")
    )
    if options.files_per_batch is not None:
        reader = reader.option("maxFilesPerTrigger", options.files_per_batch)
    frame = reader.load(str(source.root)).select("path")
    return SourceFrame(frame, FileReader(source, positions))


class FileReader:
    """Reads files as the embedded source does, each one whole: it is complete when it appears."""

    ended = None

    def __init__(self, source: InputFiles, positions: Positions) -> None:
        self._source = copy.copy(source)
        self._source.follow = False
        self._positions = positions

    def read(self, batch: pa.RecordBatch) -> Iterator[tuple[str, list[Any]]]:
        """Raises what the source raises."""
        for url in batch.column("path").to_pylist():
            split = self._source.split_of(Path(unquote(urlsplit(url).path)))
            if split is not None:
                yield from self._records(split)

    def _records(self, split: str) -> Iterator[tuple[str, list[Any]]]:
        before = self._positions.get(split)
        if before is not None and before.is_ended:
            return
        reader = self._source.open(split, None if before is None else before.position)
        try:
            while (records := reader.read()) is not None:
                if records:
                    yield split, records
        finally:
            reader.close()


def _topics(
    spark: "SparkSession", source: KafkaSource, options: SourceOptions, positions: Positions
) -> SourceFrame:
    settings = {
        "kafka.bootstrap.servers": source.cluster.bootstrap,
        "subscribe": ",".join(source.topics),
        "includeHeaders": "true",
        "failOnDataLoss": str(source.fails_on_missing_offset).lower(),
        "kafka.isolation.level": "read_committed",
        **_client(source),
        **_start(source, positions),
        **options.kafka,
    }
    if options.messages_per_batch is not None:
        settings["maxOffsetsPerTrigger"] = str(options.messages_per_batch)
    frame = spark.readStream.format("kafka").options(**settings).load()
    # What Spark's client needs other settings for, the job's client cannot ask.
    splits: dict[str, int | None] = {} if options.kafka else dict.fromkeys(_partitions(source))
    splits |= {split: before.latest for split, before in positions.items()}
    return SourceFrame(_columns(frame), MessageReader(source.decoder), splits)


def _partitions(source: KafkaSource) -> list[str]:
    """The partitions that there are now: event time waits for those without messages, too.

    Raises StoreUnreachableError and ObjectNotFoundError, as a start of the job does.
    """
    try:
        return source.discover()
    finally:
        source.close()


def _columns(frame: "DataFrame") -> "DataFrame":
    return frame.selectExpr(
        *("key", "value", "headers", "topic", "partition", "offset"),
        "unix_millis(timestamp) timestamp",
    )


def _client(source: KafkaSource) -> dict[str, str]:
    """The settings of a source's client for Spark's; raises ConfigError for others."""
    settings_left = dict(source.cluster.settings)
    user, password = (settings_left.pop(name, None) for name in _USER)
    settings: dict[str, str] = {}
    for name, value in settings_left.items():
        java = _KAFKA_NAMES.get(name, name)
        if java not in _KAFKA_SETTINGS:
            raise refused(
                f"setting {name!r} of a KafkaSource",
                f"one that Kafka's client for Java has, too: {', '.join(sorted(_KAFKA_SETTINGS))}",
                "one of librdkafka",
                "leave it out, and pass what the client for Java has for it as an option of "
                "Spark's source for Kafka",
            )
        settings[f"kafka.{java}"] = str(value)
    if user is not None:
        module = "org.apache.kafka.common.security." + (
            "scram.ScramLoginModule"
            if settings.get("kafka.sasl.mechanism", "").startswith("SCRAM")
            else "plain.PlainLoginModule"
        )
        settings["kafka.sasl.jaas.config"] = (
            f"{module} required username={json.dumps(user)} password={json.dumps(password)};"
        )
    return settings


def _start(source: KafkaSource, positions: Positions) -> dict[str, str]:
    """Where the first batch begins."""
    if positions:
        offsets = {
            split: _EARLIEST if before.position in (None, "earliest") else before.position
            for split, before in positions.items()
        }
    elif isinstance(source.start, Mapping):
        offsets = {f"{topic}/{number}": offset for (topic, number), offset in source.start.items()}
    elif isinstance(source.start, datetime):
        return {"startingTimestamp": str(round(source.start.timestamp() * 1000))}
    else:
        return {"startingOffsets": source.start}
    by_topic: dict[str, dict[str, int]] = {}
    for split, offset in offsets.items():
        topic, _, number = split.rpartition("/")
        by_topic.setdefault(topic, {})[number] = offset
    without_start = [topic for topic in source.topics if topic not in by_topic]
    if without_start:
        raise ConfigError(
            f"offsets of topics {', '.join(without_start)}",
            expected="a start for each partition of all topics of the source",
            found=f"those of {', '.join(by_topic)}",
            action="name a start for all",
        )
    return {"startingOffsets": json.dumps(by_topic)}


class _Message:
    """A row of Spark's source in the form of a message of librdkafka."""

    __slots__ = ("_row",)

    def __init__(self, row: Mapping[str, Any]) -> None:
        self._row = row

    def key(self) -> bytes | None:
        value: bytes | None = self._row["key"]
        return value

    def value(self) -> bytes | None:
        value: bytes | None = self._row["value"]
        return value

    def headers(self) -> list[tuple[str, bytes | None]]:
        return [(header["key"], header["value"]) for header in self._row["headers"] or ()]

    def timestamp(self) -> tuple[int, int]:
        return 0, self._row["timestamp"]

    def topic(self) -> str:
        return str(self._row["topic"])

    def partition(self) -> int:
        return int(self._row["partition"])

    def offset(self) -> int:
        return int(self._row["offset"])


class MessageReader:
    """Makes records of messages as the embedded source does."""

    ended = ()

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder

    def read(self, batch: pa.RecordBatch) -> Iterator[tuple[str, list[Any]]]:
        """Raises what the decoder raises."""
        by_split: dict[str, list[_Message]] = {}
        for row in batch.to_pylist():
            by_split.setdefault(f"{row['topic']}/{row['partition']}", []).append(_Message(row))
        for split, messages in by_split.items():
            yield split, self._decoder.records(messages)
