"""Queries over topics of Kafka, killed and started again, give what the embedded runtime gives."""

import json

import pytest

from tests.spark.support.application import Application, Job
from tests.spark.support.census import assert_complete
from tests.spark.support.place import Place
from tests.spark.support.zoo.all import QUERIES
from tests.spark.support.zoo.query import Batch, Topics
from tests.support.kafka import Topics as Cluster

pytestmark = [pytest.mark.plugin_only, pytest.mark.usefixtures("spark_or_skip")]


def written(cluster: Cluster, batches: list[Batch], partitions: int) -> Topics:
    """The input of a query as topics, a message for each record."""
    found = Topics(cluster.bootstrap, cluster.new())
    for source in batches[0]:
        cluster.new(partitions, found.name(source))
    for batch in batches:
        for source, rows in batch.items():
            cluster.write(found.name(source), map(json.dumps, rows))
    return found


@pytest.mark.parametrize(
    ("name", "partitions"), [("totals", 3), ("inner_join_format_3", 1), ("join_by_a_processor", 2)]
)
def test_a_query_killed_in_the_middle_of_a_topic_gives_the_result_of_the_whole(
    name: str, partitions: int, topics: Cluster, given: dict[str, str], place: Place
) -> None:
    query = QUERIES[name]
    batches = query.batches()
    job = Job(place, name, topics=written(topics, batches, partitions))
    for done in (2, 5):
        with Application((job,), given) as application:
            application.await_batches(done)
            application.kill()
    with Application((job,), given) as application:
        application.finish()
    result = query.result(place.rows())
    assert result and result == query.expected(batches)
    assert_complete(place.checkpoint)
