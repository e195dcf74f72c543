"""Topics of Kafka give the same on Spark and embedded, though both are killed in the middle."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.process.harness import Run, killed_at_last, wait_until
from tests.spark.support.application import Application, Job
from tests.spark.support.census import assert_complete
from tests.spark.support.place import Place, Row
from tests.spark.support.zoo.all import QUERIES
from tests.spark.support.zoo.query import END, LATE, Batch, Topics
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


def embedded(name: str, topics: Topics, directory: Path) -> list[Row]:
    """What a job of the embedded runtime makes of the topics; killed once and started again."""
    run = Run(directory, f"tests.spark.kafka.embedded:{name}", ("--parallelism", "2"))
    (run.input / "topics").write_text(json.dumps(asdict(topics)))
    with killed_at_last(run.start()) as process:
        wait_until(lambda: run.slots() > 1, process)
    run.finish()
    return run.records()


@pytest.mark.parametrize(
    ("name", "partitions", "embedded_job"),
    [
        ("totals", 3, "totals"),
        ("inner_join_format_3", 1, "pairs"),
        ("join_by_a_processor", 2, "pairs"),
    ],
)
def test_topics_give_the_same_on_spark_and_embedded_though_both_are_killed(
    name: str,
    partitions: int,
    embedded_job: str,
    topics: Cluster,
    given: dict[str, str],
    place: Place,
    tmp_path: Path,
) -> None:
    query = QUERIES[name]
    batches = query.batches()
    read = written(topics, batches, partitions)
    job = Job(place, name, topics=read)
    for done in (2, 5):
        with Application((job,), given) as application:
            application.await_batches(done)
            application.kill()
    with Application((job,), given) as application:
        application.finish()
    result = query.result(place.rows())
    assert result and result == query.expected(batches)
    rows = embedded(embedded_job, read, tmp_path / "embedded")
    # Spark's join drops what is older than its watermark; the processor has none.
    assert result == query.result([row for row in rows if row["k"] not in (END, LATE)])
    assert_complete(place.checkpoint)
