"""Tables get each row once, though a commit fails when its batch is stored already."""

import sqlite3
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest

import tidelog.spark
from tests.spark.job import jobs
from tests.spark.support.place import Place
from tests.support import postgres
from tests.support.pipelines import Outside, run
from tidelog import PostgresSink, Sink, SinkContext, SinkWriter, SqliteSink
from tidelog.storage.memory import MemoryStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = {"k": "text", "start_ms": "bigint", "n": "bigint"}


class _Failing(SinkWriter):
    """A writer whose commits fail."""

    def __init__(self, writer: SinkWriter) -> None:
        self._writer = writer

    def recover(self, transactions: Sequence[bytes]) -> None:
        self._writer.recover(transactions)

    def write(self, records: Sequence[Any]) -> None:
        self._writer.write(records)

    def pre_commit(self, checkpoint: Any) -> bytes | None:
        return self._writer.pre_commit(checkpoint)

    def commit(self, transaction: bytes) -> None:
        raise OSError("the server went away")

    def close(self) -> None:
        self._writer.close()


class FailingSink(Sink):
    """A sink that pre-commits and never commits."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def open(self, context: SinkContext) -> SinkWriter:
        return _Failing(self._sink.open(context))


def query(spark: "SparkSession", place: Place, sinks: dict[str, Sink]) -> None:
    """Handle the input that is there."""
    source = place.source("source").parent
    job = jobs.tables(source, sinks)
    tidelog.spark.run(job, checkpoint=str(place.checkpoint), spark=spark, available_now=True).wait()


def expected(place: Place) -> Counter[tuple[Any, ...]]:
    outside = Outside()
    run(jobs.tables(place.source("source").parent, {"outside": outside}), MemoryStore())
    return Counter(row for row in outside.records if row[0] != jobs.END)


def test_a_batch_that_was_not_committed_is_committed_by_the_next_start_and_not_written_again(
    spark: "SparkSession", place: Place, postgres_server: postgres.Server
) -> None:
    for rows in jobs.batches(records=200):
        place.add("source", rows)
    database, file = postgres_server.database(), place.root / "rows.db"
    sinks: dict[str, Sink] = {
        "postgres": PostgresSink(database, "counts", COLUMNS),
        "sqlite": SqliteSink(file, "counts", {"k": "TEXT", "start_ms": "INTEGER", "n": "INTEGER"}),
    }
    failing: dict[str, Sink] = {name: FailingSink(sink) for name, sink in sinks.items()}
    with pytest.raises(Exception, match="the server went away"):
        query(spark, place, failing)
    query(spark, place, sinks)
    rows = postgres.query(database, "SELECT k, start_ms, n FROM counts")
    assert Counter(row for row in rows if row[0] != jobs.END) == expected(place)
    with sqlite3.connect(file) as connection:
        found = connection.execute("SELECT k, start_ms, n FROM counts").fetchall()
    assert Counter(row for row in found if row[0] != jobs.END) == expected(place)
