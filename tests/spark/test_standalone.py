"""A query on a standalone cluster, whose executors end with every application."""

from pathlib import Path

import pytest

from tests.spark.support.application import Application, Job
from tests.spark.support.applications import settings
from tests.spark.support.census import assert_complete
from tests.spark.support.place import Place
from tests.spark.support.running import add
from tests.spark.support.standalone import StandaloneCluster
from tests.spark.support.zoo.all import QUERIES

pytestmark = [pytest.mark.plugin_only, pytest.mark.usefixtures("spark_or_skip")]


def test_executors_of_a_cluster_go_on_from_what_earlier_ones_have_stored(
    place: Place, tmp_path: Path
) -> None:
    query = QUERIES["inner_join_format_2"]
    batches = query.batches()
    given = settings(tmp_path / "faults") | {"spark.executor.cores": "1"}

    with StandaloneCluster(tmp_path / "cluster") as cluster:
        for half in (slice(0, 5), slice(5, None)):
            add(place, batches[half])
            with Application((Job(place, query.name),), given, cluster.url) as application:
                application.finish()

    assert query.result(place.rows()) == query.expected(batches)
    assert_complete(place.checkpoint)
    writers = {path.name.split("-")[1] for path in place.checkpoint.rglob("*.seg")}
    assert writers == {"0", "1"}, "both executors have written segments"
