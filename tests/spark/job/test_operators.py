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
    jobs.joins: ["inner-join", "left-join", "enrich", "enrich-now"],
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
