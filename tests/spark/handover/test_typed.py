"""A processor's state goes from an embedded job to the same class on Spark."""

import shutil
from collections import Counter
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.handover.embedded import finished, lines, stopped
from tests.spark.handover.functions import DELAY_MS, KEPT, Keeper, Mover, records, write
from tests.spark.handover.program import moved, run
from tests.spark.support.application import Application, settings
from tests.spark.support.application import Job as Query
from tests.spark.support.place import Place
from tidelog import FileSink, ForeachSink, Job, JsonLinesSource
from tidelog.spark import transform

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIELDS = ("k", "time_ms", "count", "sum", "recent", "tags", "best")


@pytest.fixture(autouse=True)
def few_partitions(spark: "SparkSession") -> None:
    spark.conf.set("spark.sql.shuffle.partitions", "2")


def moving_job(source: Path, output: Path, *, follow: bool) -> Job:
    """The job of `Mover`."""
    job = Job("moving")
    (
        job.source(JsonLinesSource(source, follow=follow, chunk_bytes=2_048))
        .event_time(attrgetter("time_ms"), max_delay_ms=DELAY_MS)
        .key_by(attrgetter("k"))
        .transform_with_state(Mover, time_mode="event", name="mover")
        .map(lambda row: row.asDict())
        .sink(FileSink(output, format="json", fields=FIELDS))
    )
    return job


def counted(rows: list[dict[str, Any]]) -> Counter[str]:
    return Counter(repr(sorted(row.items())) for row in rows)


def first_part(tmp_path: Path, before: list[Any]) -> Counter[str]:
    """Runs the embedded part, whose savepoint is `halt` of `store`; returns what it gives."""
    write(tmp_path / "before/a.jsonl", before)
    job = moving_job(tmp_path / "before", tmp_path / "first", follow=True)
    stopped(job, tmp_path / "store", len(before))
    return counted(lines(tmp_path / "first"))


def in_one_run(tmp_path: Path, rows: list[Any]) -> Counter[str]:
    write(tmp_path / "all/a.jsonl", rows)
    whole = moving_job(tmp_path / "all", tmp_path / "whole", follow=False)
    finished(whole, tmp_path / "whole-store")
    return counted(lines(tmp_path / "whole"))


def test_a_function_goes_on_in_spark_though_the_driver_is_killed_in_the_first_batch(
    spark: "SparkSession", tmp_path: Path, place: Place
) -> None:
    before, after, later = records(7, 40, [600, 400, 300])
    first = first_part(tmp_path, before)
    savepoint = f"{tmp_path}/store@halt"
    place.add("after", after)
    request = {"savepoint": savepoint, "hangs": True}
    module = "tests.spark.handover.program"
    with Application(
        (Query(place, "moved"),), settings(tmp_path / "faults"), module=module, extra=request
    ) as application:
        application.await_file(place.written / "000000.json")
        application.kill()
    assert not place.committed()
    run(moved(spark, place, savepoint), place)
    # The query has all of it in its own state: the next start needs the savepoint no more.
    shutil.rmtree(tmp_path / "store")
    place.add("after", later)
    run(moved(spark, place, savepoint), place)
    assert first
    assert first + counted(place.rows()) == in_one_run(tmp_path, [*before, *after, *later])


def kept(
    spark: "SparkSession", place: Place, initial_state: Any, keys: list[Any], **options: Any
) -> dict[tuple[str, int], str]:
    """What `Keeper` finds of these keys on Spark."""
    place.add("asked", [{"k": k, "l": number} for k, number in keys])
    stream = spark.readStream.schema(KEPT).json(str(place.source("asked")))
    query = transform(
        stream,
        Keeper,
        key=["k", "l"],
        output_schema="k string, l bigint, found string",
        time_mode="processing",
        initial_state=initial_state,
        **options,
    )
    spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
    run(query, place)
    return {(row["k"], row["l"]): row["found"] for row in place.rows()}


def keeping_job(source: Path, handled: list[Any]) -> Job:
    job = Job("keeping")
    (
        job.source(JsonLinesSource(source, follow=True))
        .key_by(lambda row: (row.k, row.l))
        .transform_with_state(Keeper, time_mode="processing", name="keeper")
        .sink(ForeachSink(handled.append))
    )
    return job


def test_what_has_a_ttl_lives_for_all_of_it_again_which_a_warning_says(
    spark: "SparkSession", tmp_path: Path, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [{"k": "a", "l": 1, "n": 5}, {"k": "a", "l": 2, "n": 8}, {"k": "a", "l": 1, "n": 6}]
    write(tmp_path / "in/a.jsonl", [*rows, {"k": "end", "l": 0, "n": None}])
    handled: list[Any] = []
    stopped(keeping_job(tmp_path / "in", handled), tmp_path / "store", lambda: bool(handled))
    found = kept(
        spark,
        place,
        f"{tmp_path}/store@halt",
        [("a", 1), ("a", 2), ("b", 1)],
        operator="keeper",
        checkpoint=str(place.checkpoint),
    )
    assert found == {
        ("a", 1): "[[(5,), (6,), (6,), (7,)], (6,), (6,)]",
        ("a", 2): "[[(8,), (9,)], (8,), (8,)]",
        ("b", 1): "[[], None, None]",
    }
    warned = [record.args for record in caplog.records if record.event == "ttl_restarts"]  # type: ignore[attr-defined]
    assert [fields["state"] for fields in warned] == ["value", "list"]  # type: ignore[call-overload,index]


def test_rows_of_another_system_go_to_the_class_before_those_of_the_stream(
    spark: "SparkSession", place: Place
) -> None:
    rows = spark.createDataFrame([("a", 1, 20), ("a", 1, 3), ("b", 2, 7)], KEPT)
    found = kept(spark, place, rows, [("a", 1), ("c", 3)])
    assert found == {("a", 1): "[[], None, (23,)]", ("c", 3): "[[], None, None]"}
