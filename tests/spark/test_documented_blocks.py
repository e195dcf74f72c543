"""The programs that the docs print for Spark run as they are printed, but for their addresses."""

from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.first_jobs.programs import add_rows, rows_of
from tests.spark.handover.embedded import stopped
from tests.support.cli import lay_out, tidelog
from tests.support.documentation import BLOCKS
from tests.support.jobs import filled
from tidelog import FileSink, Job, JobArguments, JsonLinesSource
from tidelog.examples.outages_function import Outages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def names_of(block: str, addresses: dict[str, Path], **given: Any) -> dict[str, Any]:
    """What a printed program defines; it finds its data at these addresses."""
    text = BLOCKS[block]
    for printed, path in addresses.items():
        assert printed in text
        text = text.replace(printed, str(path))
    exec(text, given)
    return given


def test_the_data_source_shows_changes(
    spark: "SparkSession", tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = {"s3://bucket/jobs/counts": lay_out(tmp_path / "store", filled())}
    names_of("data-source 0", store, spark=spark)
    assert "|operator|subtask|" in capsys.readouterr().out


def test_a_processor_runs_and_its_state_is_read(
    spark: "SparkSession", tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    times = [0, 10_000, 100_000, 120_000]
    readings = [{"device": "a", "time_ms": time, "value": 1.0} for time in times]
    add_rows(tmp_path / "readings" / "1.jsonl", readings)
    add_rows(tmp_path / "readings" / "2.jsonl", [{"device": "b", "time_ms": 500_000, "value": 1.0}])
    places = {"s3a://bucket/outages": tmp_path / "outages"}
    given = names_of("processor 2", places | {"readings/": tmp_path / "readings"})
    found: list[Any] = []
    query = given["query"].foreachBatch(lambda rows, _: found.extend(rows.collect()))
    query.trigger(availableNow=True).start().awaitTermination()
    assert [(row.device, row.silent_ms) for row in found] == [("a", 90_000)]
    names_of("processor 4", places, spark=spark)
    assert "{a}" in capsys.readouterr().out


def test_a_state_is_joined_with_expected_values(
    spark: "SparkSession", tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, store = tmp_path / "input" / "one.txt", tmp_path / "store"
    text.parent.mkdir()
    text.write_text("the tide rises\nthe tide falls\n")
    job = ("wordcount", "--input", text.parent, "--store", store, "--output", tmp_path / "counts")
    assert tidelog("run", *job, "--quiet").exit_code == 0
    places = {"s3://bucket/jobs/wordcount": store, "s3a://bucket/input": text.parent}
    assert names_of("verify 0", places, spark=spark)["differing"].collect() == []
    text.write_text("the tide turns\n")
    differing = names_of("verify 0", places, spark=spark)["differing"].collect()
    assert {tuple(row) for row in differing} == {
        ("the", 2, 1),
        ("tide", 2, 1),
        ("rises", 1, None),
        ("falls", 1, None),
        ("turns", None, 1),
    }
    assert "|turns|" in capsys.readouterr().out.replace(" ", "")


def test_part_of_a_job_gives_columns(spark: "SparkSession", tmp_path: Path) -> None:
    orders = [{"country": "FI", "amount": n, "time_ms": n * 10_000} for n in range(13)]
    add_rows(tmp_path / "orders" / "1.jsonl", orders)
    add_rows(tmp_path / "orders" / "2.jsonl", [{"country": "end", "amount": 0, "time_ms": 10**6}])
    job = names_of("spark-cluster 0", {})["job"](JobArguments(str(tmp_path / "orders"), "none"))
    places = {"s3a://bucket/orders/": tmp_path / "orders", "s3a://bucket/revenue": tmp_path / "cp"}
    found: list[Any] = []
    query = names_of("spark-cluster 2", places)["revenue"](spark, job).writeStream
    query = query.option("checkpointLocation", str(tmp_path / "cp"))
    query = query.foreachBatch(lambda rows, _: found.extend(rows.collect()))
    query.trigger(availableNow=True).start().awaitTermination()
    assert sorted(tuple(row) for row in found) == [
        ("FI", 0, 15),
        ("FI", 60_000, 51),
        ("FI", 120_000, 12),
    ]


def test_a_job_starts_as_a_query(spark: "SparkSession", tmp_path: Path) -> None:
    orders = [{"country": "FI", "amount": n, "time_ms": n * 10_000} for n in range(8)]
    add_rows(tmp_path / "orders" / "1.jsonl", orders)
    arguments = JobArguments(str(tmp_path / "orders"), str(tmp_path / "revenue"))
    places: dict[str, Any] = {"s3a://bucket/shop": tmp_path / "shop"}
    printed = names_of("spark-cluster 1", {**places, 'trigger="10 seconds"': "available_now=True"})
    printed["start"](names_of("spark-cluster 0", {})["job"](arguments))
    assert rows_of(tmp_path / "revenue") == [{"country": "FI", "start_ms": 0, "amount": 15}]


def test_a_function_and_its_files_go_on_in_spark(spark: "SparkSession", tmp_path: Path) -> None:
    readings, store, handled = tmp_path / "readings", tmp_path / "store", list[Any]()
    times = [0, 10_000, 100_000]
    add_rows(readings / "1.jsonl", [{"device": "a", "time_ms": t, "value": 1.0} for t in times])
    job = Job("outages")
    source = job.source(JsonLinesSource(readings, follow=True)).event_time(attrgetter("time_ms"))
    keyed = source.map(lambda row: handled.append(row) or row).key_by(attrgetter("device"))
    outages = keyed.transform_with_state(Outages, time_mode="event", name="outages")
    outages.sink(FileSink(tmp_path / "embedded"))
    stopped(job, store, lambda: len(handled) == len(times))
    add_rows(readings / "2.jsonl", [{"device": "a", "time_ms": 300_000, "value": 1.0}])
    add_rows(readings / "2.jsonl", [{"device": "b", "time_ms": 900_000, "value": 1.0}])
    cp = {"s3a://bucket/outages-spark": tmp_path / "outages"}
    savepoint: dict[str, Any] = {"s3://bucket/outages@halt": f"{store}@halt"}
    places = {"s3a://bucket/readings/": readings} | cp | savepoint
    found: list[Any] = []
    query = names_of("spark-handover 0", places)["outages"](spark)
    query = query.foreachBatch(lambda rows, _: found.extend(rows.collect()))
    query.trigger(availableNow=True).start().awaitTermination()
    assert 200_000 in [row.silent_ms for row in found]
    rest = {"/mnt/readings-rest": tmp_path / "rest"}
    files = names_of(
        "spark-handover 2", rest | {'"/mnt/readings"': repr(str(readings))} | cp | savepoint
    )
    assert files["readings"](spark, "device string, time_ms bigint, value double").isStreaming
