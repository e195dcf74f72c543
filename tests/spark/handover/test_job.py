"""A whole job moves to Spark with its operators' bytes."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tidelog.spark
from tests.spark.handover.embedded import finished, lines, stopped
from tests.spark.handover.functions import END, end, records, write
from tests.spark.handover.jobs import windows_job
from tests.spark.support.place import Place
from tests.support.cli import tidelog as command
from tidelog import Job, RestoreError, StoreUnreachableError
from tidelog.checkpoint.slots import SlotLog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTS = ("o1", "o2", "o3")


@pytest.fixture(autouse=True)
def few_partitions(spark: "SparkSession") -> None:
    spark.conf.set("spark.sql.shuffle.partitions", "2")


def output(directory: Path) -> Counter[str]:
    """What a job has written, but for what the end of the data has made."""
    rows = [row for part in PARTS for row in lines(directory / part) if row["k"] != END]
    return Counter(repr(sorted(row.items())) for row in rows)


def on_spark(spark: "SparkSession", job: Job, store: Path, query: Path) -> None:
    """Go on in Spark until the input that is there is read."""
    moved = tidelog.spark.run(
        job, checkpoint=str(query), spark=spark, available_now=True, savepoint=f"{store}@halt"
    )
    moved.wait()


def in_one_run(tmp_path: Path, parts: list[list[Any]]) -> Counter[str]:
    write(tmp_path / "all/a.jsonl", [row for part in parts for row in part])
    finished(windows_job(tmp_path / "all", tmp_path / "whole", follow=False), tmp_path / "w")
    return output(tmp_path / "whole")


async def lost(*_: object) -> None:
    raise StoreUnreachableError("the store")


def test_a_job_goes_on_in_spark_and_back_as_in_one_run(
    spark: "SparkSession", tmp_path: Path, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = records(7, 20, [500, 300, 300])
    parts[-1].append(end())
    source, store, query = tmp_path / "in", tmp_path / "store", place.checkpoint
    job = windows_job(source, tmp_path / "out", follow=True)
    counts = []
    write(source / "a.jsonl", parts[0])
    stopped(job, store, len(parts[0]))
    counts.append(output(tmp_path / "out").total())
    write(source / "b.jsonl", parts[1])
    on_spark(spark, job, store, query)
    counts.append(output(tmp_path / "out").total())
    savepoint = ("spark", "savepoint", query, "--to", f"{store}@back", "--parallelism", "3")
    with monkeypatch.context() as faults:
        faults.setattr(SlotLog, "append", lost)
        assert command(*savepoint).exit_code == 1
    with pytest.raises(RestoreError, match="moved to the Spark checkpoint"):
        finished(job, store)
    returned = command(*savepoint)
    assert returned.exit_code == 0, returned.output
    with pytest.raises(RestoreError, match="it went back to savepoint"):
        on_spark(spark, job, store, query)
    write(source / "c.jsonl", parts[2])
    finished(windows_job(source, tmp_path / "out", follow=False), store)
    expected = in_one_run(tmp_path, parts)
    counts.append(expected.total())
    assert counts == sorted({*counts, 0})[1:], "each part has output"
    assert output(tmp_path / "out") == expected
    inspected = command("inspect", store, "--deep")
    assert inspected.exit_code == 0, inspected.output
