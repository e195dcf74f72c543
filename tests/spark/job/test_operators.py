"""Every operator gives on Spark what it gives embedded, by value."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tidelog.spark
from tests.spark.job import jobs
from tests.spark.support.place import Place
from tests.support.pipelines import run
from tidelog import Job
from tidelog.storage.memory import MemoryStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OUTPUTS: dict[Callable[[Path, Path], Job], list[str]] = {
    jobs.windows: ["session", "tumbling", "sliding", "top", "records", "lateness"],
    jobs.keyed: ["count", "sum", "mean", "running-top", "aggregate", "count-window", "deduplicate"],
    jobs.joins: ["inner-join", "left-join", "outer-join", "enrich", "enrich-now"],
    jobs.processors: ["streaks", "running", "several", "maximum", "union"],
}


def written(place: Place) -> Path:
    """Input for all jobs."""
    for name, batches in jobs.inputs().items():
        for rows in batches:
            place.add(name, rows)
    return place.source("source").parent


def output(directory: Path, name: str) -> Counter[jobs.Line]:
    return jobs.compared(jobs.lines_of(directory / name), name)


@pytest.mark.parametrize("job", OUTPUTS, ids=lambda job: job.__name__)
def test_operators_give_on_spark_what_they_give_embedded(
    job: Callable[[Path, Path], Job], spark: "SparkSession", place: Place
) -> None:
    source = written(place)
    run(job(source, place.root / "embedded"), MemoryStore())
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    query = tidelog.spark.run(
        job(source, place.root / "spark"),
        checkpoint=str(place.checkpoint),
        spark=spark,
        available_now=True,
        sources=tidelog.spark.SourceOptions(files_per_batch=2),
    )
    query.wait()
    for name in OUTPUTS[job]:
        expected = output(place.root / "embedded", name)
        assert expected, name
        assert output(place.root / "spark", name) == expected, name


def test_a_query_with_timers_of_processing_time_ends_when_the_input_is_handled(
    spark: "SparkSession", place: Place
) -> None:
    for rows in jobs.batches(records=30):
        place.add("source", rows)
    source, output = place.source("source").parent, place.root / "spark"
    query = tidelog.spark.run(
        jobs.clocks(source, output),
        checkpoint=str(place.checkpoint),
        spark=spark,
        available_now=True,
        sources=tidelog.spark.SourceOptions(files_per_batch=1),
    )
    query.wait()
    lines = Counter(jobs.lines_of(output / "clocked"))
    assert lines, "timers of the first batches have fired in later ones"
    assert set(lines.values()) == {1}


def test_part_of_a_job_runs_over_a_data_frame(spark: "SparkSession", place: Place) -> None:
    source = written(place)
    run(jobs.windows(source, place.root / "embedded"), MemoryStore())
    schema = "k string, t bigint, n bigint, v bigint, tag string"
    rows = tidelog.spark.run_operator(
        spark.readStream.schema(schema).json(str(source / "source")),
        jobs.windows(source, place.root / "none"),
        "sliding-text",
        output_schema="k string, is string",
        checkpoint=str(place.checkpoint),
    )
    found: list[jobs.Line] = []
    writer = rows.writeStream.foreachBatch(
        lambda frame, _: found.extend(map(tuple, frame.collect()))
    )
    writer = writer.option("checkpointLocation", str(place.checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()
    complete = [line for line in found if line[0] != jobs.END]
    assert jobs.compared(complete, "sliding") == output(place.root / "embedded", "sliding")
