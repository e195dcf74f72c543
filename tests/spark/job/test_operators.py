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

LAST = {"count", "sum", "mean", "running-top", "aggregate"}
"""Outputs that are updates, as many as there are buffers: the last one of a key is compared."""
OUTPUTS: dict[Callable[[Path, Path], Job], list[str]] = {
    jobs.windows: ["session", "tumbling", "sliding", "top", "records", "lateness"],
    jobs.keyed: [*sorted(LAST), "count-window", "deduplicate"],
    jobs.joins: ["inner-join", "left-join", "enrich", "enrich-now"],
    jobs.processors: ["streaks", "running", "several", "union"],
}


def written(place: Place) -> Path:
    """Input for all jobs, of three batches."""
    parts = jobs.batches()
    for number, rows in enumerate(parts):
        place.add("source", rows)
        place.add("left", rows[::2] if rows[-1]["k"] != jobs.END else [*rows[:-1:2], rows[-1]])
        place.add("right", rows[1::2] if rows[-1]["k"] != jobs.END else [*rows[1:-1:2], rows[-1]])
        place.add("other", jobs.batches(seed=11)[number])
    return place.source("source").parent


def compared(directory: Path, name: str) -> Counter[tuple[str, str]]:
    lines = jobs.lines_of(directory / name)
    return Counter(dict(lines).items()) if name in LAST else Counter(lines)


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
        expected = compared(place.root / "embedded", name)
        assert expected, name
        assert compared(place.root / "spark", name) == expected, name
