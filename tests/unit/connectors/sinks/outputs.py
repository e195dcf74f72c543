"""The sinks that are exactly once, by what their readers see and what lies hidden beside it."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_kafka import FakeKafka
from tests.support.iceberg import Lake
from tests.support.output_files import output_lines
from tests.support.postgres import query
from tidelog import FileSink, IcebergSink, KafkaSink, PostgresSink, Sink, SqliteSink
from tidelog.connectors.sql.postgres import TableNames

KINDS = ("files", "sqlite", "postgres", "iceberg", "kafka")


@dataclass(frozen=True)
class Output:
    """Where numbers go, as records of one field `n`."""

    sink: Callable[[], Sink]
    shown: Callable[[], list[int]]
    """In the order written, sorted where the system has no order."""
    hidden: Callable[[], int]
    """Parts or rows that were written and not committed."""
    recorded: Callable[[], int] = lambda: 0
    """Rows in which a database remembers what was committed, or starts of which Kafka does."""


def output(kind: str, request: pytest.FixtureRequest, number: int = 0) -> Output:
    """An empty one for each number; skips when there is no PostgreSQL."""
    if kind == "kafka":
        return _kafka(request.getfixturevalue("fake_kafka"), f"numbers-{number}")
    if kind == "postgres":
        return _postgres(request.getfixturevalue("conninfo"), f"numbers_{number}")
    directory: Path = request.getfixturevalue("tmp_path")
    if kind == "files":
        return _files(directory / f"out-{number}")
    if kind == "sqlite":
        return _sqlite(directory / f"out-{number}.db")
    return _iceberg(directory, f"lake.numbers_{number}")


def _files(directory: Path) -> Output:
    def shown() -> list[int]:
        return [json.loads(line)["n"] for line in output_lines(directory)]

    return Output(
        lambda: FileSink(directory, fields=("n",), roll_bytes=40),
        shown,
        lambda: len(list((directory / ".tidelog").glob("*.inprogress"))),
    )


def _sqlite(path: Path) -> Output:
    def ask(sql: str) -> list[Any]:
        with closing(sqlite3.connect(path)) as connection:
            return connection.execute(sql).fetchall()

    return Output(
        lambda: SqliteSink(path, "numbers", {"n": "INTEGER"}),
        lambda: [n for (n,) in ask("SELECT n FROM numbers ORDER BY rowid")],
        lambda: int(ask("SELECT count(*) FROM _tidelog_pending")[0][0]),
        lambda: int(ask("SELECT count(*) FROM _tidelog_committed")[0][0]),
    )


def _postgres(conninfo: str, table: str) -> Output:
    pending = TableNames(table, {"n": "bigint"}).pending
    return Output(
        lambda: PostgresSink(conninfo, table, {"n": "bigint"}),
        lambda: [n for (n,) in query(conninfo, f"SELECT n FROM {table} ORDER BY ctid")],
        lambda: int(query(conninfo, f"SELECT count(*) FROM {pending}")[0][0]),
        lambda: int(query(conninfo, "SELECT count(*) FROM _tidelog_committed")[0][0]),
    )


def _iceberg(directory: Path, table: str) -> Output:
    lake = Lake(directory)
    lake.create(table, n="long")
    return Output(
        lambda: IcebergSink(lake.catalog, table),
        lambda: sorted(row["n"] for row in lake.rows(table)),
        lambda: len(lake.announced(table)) + len(lake.unreferenced(table)),
        lambda: len(lake.recorded(table)),
    )


def _kafka(kafka: FakeKafka, topic: str) -> Output:
    kafka.create(topic)
    stem = f"{topic}.numbers.sink"

    def recorded() -> int:
        return len(json.loads(kafka.visible(f"{stem}.commits")[-1].value or b"")["moved"])

    return Output(
        lambda: KafkaSink(topic, bootstrap="kafka:9092", prefix=topic),
        lambda: [json.loads(entry.value or b"")[0] for entry in kafka.visible(topic)],
        lambda: kafka.kept(f"{stem}.staging") + kafka.kept(f"{topic}.job.sink.staging"),
        recorded,
    )
