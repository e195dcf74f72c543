"""A query reads on where the job stopped: each record is read once, by one of the two."""

import gzip
import json
import time
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.handover.embedded import lines, stopped
from tests.spark.support.place import Place
from tidelog import CsvSource, FileSink, Job, JsonLinesSource, KafkaSource
from tidelog.errors import RestoreError
from tidelog.runtime.source import Source
from tidelog.spark import starting_offsets, unread_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ODD_NAME = "deep/a b+c%25d#\u00e4.jsonl"
NUMBER = 4_000


def half_read(source: Source, tmp_path: Path, until: int) -> list[Any]:
    """Stops a job after about so many records; returns the texts that it has written."""
    handled: list[Any] = []

    def slow(row: Any) -> Any:
        handled.append(row)
        if len(handled) > until:
            time.sleep(0.005)  # so that the stop comes before the end
        return row

    job = Job("halves")
    sink = FileSink(tmp_path / "first", format="json", fields=("at",))
    rows = job.source(source).map(slow).map(attrgetter("at")).map(str)
    rows.map(lambda at: {"at": at}).sink(sink)
    stopped(job, tmp_path / "store", lambda: len(handled) > until)
    return [row["at"] for row in lines(tmp_path / "first")]


def read_on(spark: "SparkSession", place: Place, frame: Any) -> list[str]:
    def write(rows: Any, batch: int) -> None:
        place.write(batch, [row.asDict() for row in rows.collect()])

    writer = frame.writeStream.foreachBatch(write).trigger(availableNow=True)
    writer.option("checkpointLocation", str(place.checkpoint)).start().awaitTermination()
    return [str(row["at"]) for row in place.rows()]


def test_files_half_read_are_read_on_in_their_tails_and_others_by_name(
    spark: "SparkSession", tmp_path: Path, place: Place
) -> None:
    files = tmp_path / "in"
    (files / "deep").mkdir(parents=True)
    texts = {
        name: "".join(json.dumps({"at": f"{name}-{at}"}) + "\n" for at in range(NUMBER))
        for name in (ODD_NAME, "b.jsonl", "c.jsonl.gz")
    }
    for name, text in texts.items():
        data = text.encode()
        (files / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    source = JsonLinesSource(files, "*", follow=True, chunk_bytes=2_048)
    first = half_read(source, tmp_path, 2_000)
    (files / "new.jsonl").write_text('{"at": "new-0"}\n')
    rest = unread_files(
        f"{tmp_path}/store@halt",
        "source",
        path=files,
        tails=tmp_path / "tails",
        checkpoint=str(place.checkpoint),
    )
    reader = spark.readStream.schema("at string")
    both = (
        reader.option("recursiveFileLookup", "true")
        .json(str(files))
        .where(rest.are_new())
        .union(reader.json(rest.tails))
    )
    then = read_on(spark, place, both)
    expected = [f"{name}-{at}" for name in texts for at in range(NUMBER)]
    assert len(first) < len(expected)
    assert sorted([*first, *then]) == sorted([*expected, "new-0"])


def test_the_tail_of_a_file_with_a_header_has_one_too(
    spark: "SparkSession", tmp_path: Path, place: Place
) -> None:
    file = tmp_path / "in/a.csv"
    file.parent.mkdir()
    file.write_text("at,other\n" + "".join(f"{at},x\n" for at in range(NUMBER)))
    source = CsvSource(file.parent, follow=True, chunk_bytes=2_048)
    first = half_read(source, tmp_path, 500)
    rest = unread_files(
        f"{tmp_path}/store@halt",
        "source",
        path=file.parent,
        tails=tmp_path / "tails",
        checkpoint=str(place.checkpoint),
        header=True,
    )
    reader = spark.readStream.schema("at int, other string").option("header", "true")
    new = reader.csv(str(file.parent)).where(rest.are_new())
    then = read_on(spark, place, new.union(reader.csv(rest.tails)))
    assert 0 < len(first) < NUMBER
    assert sorted([*first, *then], key=int) == [str(at) for at in range(NUMBER)]


def test_offsets_of_kafka_are_those_of_spark(tmp_path: Path, place: Place) -> None:
    kafka = pytest.importorskip("confluent_kafka")
    # A cluster within the client library.
    producer = kafka.Producer({"test.mock.num.brokers": 1})
    broker = next(iter(producer.list_topics(timeout=30).brokers.values()))
    for at in range(30):
        producer.produce("t.x", json.dumps({"at": at}), partition=at % 2)
    assert producer.flush(30) == 0
    bootstrap = f"{broker.host}:{broker.port}"
    handled: list[Any] = []
    job = Job("offsets")
    rows = job.source(KafkaSource("t.x", bootstrap=bootstrap, value="json"))
    rows.key_by(lambda row: handled.append(row) or 0).count().sink(  # type: ignore[func-returns-value]
        FileSink(tmp_path / "first", format="json", fields=("n",))
    )
    stopped(job, tmp_path / "store", lambda: len(handled) == 30)
    savepoint, checkpoint = f"{tmp_path}/store@halt", str(place.checkpoint)
    offsets = starting_offsets(savepoint, "source", checkpoint=checkpoint, partitions={"t.x": 5})
    assert json.loads(offsets) == {"t.x": {"0": 15, "1": 15, "2": 0, "3": 0, "4": -2}}
    where = {"path": tmp_path / "in", "tails": tmp_path / "tails", "checkpoint": checkpoint}
    with pytest.raises(RestoreError, match="a source of lines"):
        unread_files(savepoint, "source", **where)  # type: ignore[arg-type]
