"""A processor's state goes from an embedded job to the same class on Spark."""

import logging
import shutil
from collections import Counter
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.handover.embedded import finished, lines, stopped
from tests.spark.handover.functions import DELAY_MS, Mover, records, write
from tests.spark.handover.program import moved, run
from tests.spark.support.place import Place
from tidelog import FileSink, Job, JsonLinesSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIELDS = ("k", "time_ms", "count", "sum", "recent", "tags", "best")


@pytest.fixture(autouse=True)
def few_partitions(spark: "SparkSession") -> None:
    spark.conf.set("spark.sql.shuffle.partitions", "2")


def moving_job(source: Path, output: Path, *, follow: bool, handled: list[Any]) -> Job:
    """The job of `Mover`; it adds each record to `handled`."""
    job = Job("moving")

    def seen(row: Any) -> Any:
        handled.append(row)
        return row

    (
        job.source(JsonLinesSource(source, follow=follow, chunk_bytes=2_048))
        .map(seen)
        .event_time(attrgetter("time_ms"), max_delay_ms=DELAY_MS)
        .key_by(attrgetter("k"))
        .transform_with_state(Mover, time_mode="event", name="mover")
        .map(lambda row: row.asDict())
        .sink(FileSink(output, format="json", fields=FIELDS))
    )
    return job


def counted(rows: list[dict[str, Any]]) -> Counter[str]:
    return Counter(repr(sorted(row.items())) for row in rows)


def first_half(tmp_path: Path, place: Place) -> Counter[str]:
    """Runs the embedded half, whose savepoint is `halt` of `store`; returns what one run gives."""
    before, after = records(seed=7, keys=40, number=1_000)
    write(tmp_path / "before/a.jsonl", before)
    write(tmp_path / "all/a.jsonl", [*before, *after])
    place.add("after", after)
    handled: list[Any] = []
    job = moving_job(tmp_path / "before", tmp_path / "first", follow=True, handled=handled)
    stopped(job, tmp_path / "store", lambda: len(handled) == len(before))
    whole = moving_job(tmp_path / "all", tmp_path / "whole", follow=False, handled=[])
    finished(whole, tmp_path / "whole-store")
    return counted(lines(tmp_path / "whole"))


def test_a_function_goes_on_in_spark_with_all_its_states_and_timers(
    spark: "SparkSession", tmp_path: Path, place: Place
) -> None:
    expected = first_half(tmp_path, place)
    run(moved(spark, place, f"{tmp_path}/store@halt"), place)
    first = counted(lines(tmp_path / "first"))
    assert first
    assert first + counted(place.rows()) == expected
    # The query has all of it in its own state: another start needs the savepoint no more.
    shutil.rmtree(tmp_path / "store")
    _, later = records(seed=8, keys=40, number=1_500)
    place.add("after", later)
    run(moved(spark, place, f"{tmp_path}/store@halt"), place)
    write(tmp_path / "all/b.jsonl", later)
