"""The core of the zoo on the other supported versions of Spark, each with its own interpreter."""

from pathlib import Path

import pytest

from tests.spark.support.application import Application, Job, settings
from tests.spark.support.census import assert_complete
from tests.spark.support.place import Place
from tests.spark.support.running import add
from tests.spark.support.versions import other_version
from tests.spark.support.zoo.all import QUERIES

pytestmark = [pytest.mark.plugin_only, pytest.mark.usefixtures("spark_or_skip")]

VERSIONS = ("4.1", "4.2")
CORE = (
    "totals",
    "three_stateful_operators",
    "tumbling_windows",
    "session_windows",
    "inner_join_format_2",
    "left_outer_join_format_3",
    "apply_in_pandas_with_state",
    "transform_with_state_in_pandas",
)


@pytest.mark.parametrize("number", VERSIONS)
def test_the_core_of_the_zoo_restarts_in_another_process_and_is_right(
    number: str, tmp_path: Path
) -> None:
    other = other_version(number)
    jobs = tuple(Job(Place(tmp_path / name), name) for name in CORE)
    inputs = {name: QUERIES[name].batches() for name in CORE}
    given = settings(tmp_path / "faults", other.home)
    for half in (slice(0, 5), slice(5, None)):
        for job in jobs:
            add(job.place, inputs[job.query][half])
        with Application(jobs, given, python=other.python) as application:
            application.finish()
    for job in jobs:
        query = QUERIES[job.query]
        assert query.result(job.place.rows()) == query.expected(inputs[job.query]), job.query
        assert_complete(job.place.checkpoint)
