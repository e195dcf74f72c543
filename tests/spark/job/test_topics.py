"""A query that is written by hand reads a topic on."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.kafka.conftest import topics
from tests.spark.handover.embedded import stopped
from tests.spark.test_documented_blocks import names_of
from tests.support.kafka import Topics
from tidelog import FileSink, Job, KafkaSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["topics"]

pytestmark = pytest.mark.usefixtures("spark_or_skip")


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
