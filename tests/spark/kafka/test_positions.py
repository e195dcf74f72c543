"""A topic is read on by Spark where an embedded job has stopped."""

from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from tests.spark.handover.embedded import lines, stopped
from tests.spark.support.application import Application, Job
from tests.spark.support.place import Place
from tests.support.kafka import Topics
from tidelog import FileSink, KafkaSource
from tidelog import Job as EmbeddedJob

pytestmark = pytest.mark.usefixtures("spark_or_skip")


def test_each_message_is_read_once_also_those_of_a_partition_that_came_later(
    topics: Topics, given: dict[str, str], place: Place, tmp_path: Path
) -> None:
    topic = topics.new(3)
    for partition in (0, 1):
        topics.write(topic, [f"{partition}-{n}" for n in range(100)], partition=partition)
    handled: list[Any] = []
    job = EmbeddedJob("offsets")
    source = KafkaSource(topic, bootstrap=topics.bootstrap, value="text")
    values = job.source(source).map(attrgetter("value"))
    values.map(lambda at: handled.append(at) or {"at": at}).sink(  # type: ignore[func-returns-value]
        FileSink(tmp_path / "first", format="json", fields=("at",))
    )
    stopped(job, tmp_path / "store", lambda: len(handled) >= 200)
    topics.grow(topic, 4)
    for partition in range(4):
        topics.write(topic, [f"{partition}-later-{n}" for n in range(10)], partition=partition)
    request = {
        "savepoint": f"{tmp_path}/store@halt",
        "bootstrap": topics.bootstrap,
        "partitions": {topic: 4},
    }
    module = "tests.spark.kafka.positions"
    with Application((Job(place, "offsets"),), given, module=module, extra=request) as application:
        application.finish()
    read = [row["at"] for row in [*lines(tmp_path / "first"), *place.rows()]]
    expected = [f"{partition}-{n}" for partition in (0, 1) for n in range(100)]
    expected += [f"{partition}-later-{n}" for partition in range(4) for n in range(10)]
    assert sorted(read) == sorted(expected)
