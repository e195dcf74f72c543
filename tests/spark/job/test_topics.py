"""A topic becomes another one on Spark as embedded, though the query is killed."""

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.kafka.conftest import topics
from tests.process.harness import wait_until
from tests.spark.handover.embedded import stopped
from tests.spark.job import jobs
from tests.spark.job.test_kill import query
from tests.spark.kafka.conftest import given
from tests.spark.support.place import Place
from tests.spark.support.session import PATIENCE_S
from tests.spark.test_documented_blocks import names_of
from tests.support.kafka import Topics
from tidelog import FileSink, Job, KafkaSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["given", "topics"]

pytestmark = pytest.mark.usefixtures("spark_or_skip")


def windows(records: jobs.Records) -> Counter[tuple[str, int, int]]:
    """Records by key and window, without those of the end."""
    complete = [row for row in records if row["k"] != jobs.END]
    sizes = Counter((row["k"], row["t"] // 5_000 * 5_000) for row in complete)
    return Counter((key, start, size) for (key, start), size in sizes.items())


def test_a_topic_becomes_another_one_though_the_query_is_killed(
    topics: Topics, given: dict[str, str], place: Place
) -> None:
    source, target = topics.new(2), topics.new()
    (records,) = jobs.batches(records=300, parts=1)
    # One partition is far ahead of the other one in each batch, and no record is late.
    fast, slow, last = records[:100], records[100:-1], records[-1]
    for partition, of_partition in enumerate(([*fast, last], [*slow, last])):
        topics.write(source, map(json.dumps, of_partition), partition=partition)
    options = ("--messages-per-batch", "120", "--conf", f"spark.jars={given['spark.jars']}")
    command = "tests.spark.job.jobs:topics"
    own = (topics.bootstrap, source, target)
    with query(place, command, *options, "--", *own) as process:
        wait_until((place.checkpoint / "commits" / "0").exists, process)
    with query(place, command, *options, "--", *own) as process:
        _, errors = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, errors
    expected = windows(records)
    topics.write(target, ["[]"])
    values = [message.value() for message in topics.read(target, expected.total() + 1)]
    *messages, last = map(json.loads, values)
    assert last == [], "more messages than windows"
    assert Counter(map(tuple, messages)) == expected


def test_the_printed_query_reads_on_where_a_job_has_stopped(
    topics: Topics, spark: "SparkSession", tmp_path: Path
) -> None:
    orders, handled = topics.new(2), list[Any]()
    topics.write(orders, ["a", "b", "c"])
    job = Job("orders")
    messages = job.source(KafkaSource(orders, bootstrap=topics.bootstrap))
    messages.map(handled.append).sink(FileSink(tmp_path / "out"))
    stopped(job, tmp_path / "store", lambda: len(handled) == 3)
    addresses: dict[str, Any] = {
        "s3://bucket/outages@halt": f"{tmp_path / 'store'}@halt",
        "s3a://bucket/outages-spark": tmp_path / "query",
        '"orders"': repr(orders),
    }
    reader = names_of("spark-handover 1", addresses)["orders"](spark)
    assert type(reader).__name__ == "DataStreamReader"
