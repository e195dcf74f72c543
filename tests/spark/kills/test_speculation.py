"""Spark starts a second attempt at a task that is slow: one of the two counts, whichever ends."""

from pathlib import Path

import pytest

from tests.spark.support.application import Application, Job, settings
from tests.spark.support.census import assert_complete
from tests.spark.support.cluster import two_hosts
from tests.spark.support.faults import OF_AN_EXECUTOR, Faults
from tests.spark.support.place import Place
from tests.spark.support.running import add
from tests.spark.support.zoo.all import QUERIES
from tests.spark.support.zoo.query import events, single

pytestmark = [pytest.mark.plugin_only, pytest.mark.usefixtures("spark_or_skip")]

SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "10ms",
    "spark.speculation.minTaskRuntime": "50ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.1",
}


def test_a_task_whose_upload_or_its_answer_hangs_is_overtaken_by_a_copy_on_another_host(
    place: Place, tmp_path: Path, faulty_apart: Faults
) -> None:
    query = QUERIES["totals"]
    batches = single(events(seed=63, batches=8, per_batch=20))
    add(place, batches)
    given = settings(faulty_apart.control) | {"spark.tidelog.part.bytes": "1"} | SPECULATION
    job = Job(place, query.name, scheme="faulty")
    with two_hosts(tmp_path) as master, Application((job,), given, master) as application:
        for action in ("hold", "hold-after"):
            hanging = faulty_apart.add(action, "put", OF_AN_EXECUTOR, times=1)
            hanging.await_fired()
            done = len(place.committed())
            application.await_batches(done + 2)
            hanging.release()
        application.finish()
    assert query.result(place.rows()) == query.expected(batches)
    assert_complete(place.checkpoint)
