"""The core of the zoo on the other supported versions of Spark, each with its own interpreter.

`TIDELOG_SPARK_41` and `TIDELOG_SPARK_42` name interpreters that have that pyspark, pandas and
pyarrow; without them `.tools/spark-4.1/bin/python` and so on are tried.
"""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.spark.support.application import Application, Job, settings
from tests.spark.support.census import assert_complete
from tests.spark.support.place import Place
from tests.spark.support.running import add
from tests.spark.support.session import ROOT
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
HOME = "import pathlib, pyspark; print(pyspark.__version__, pathlib.Path(pyspark.__file__).parent)"


@dataclass(frozen=True)
class OtherSpark:
    python: str
    home: Path


@pytest.fixture(params=VERSIONS)
def other(request: pytest.FixtureRequest) -> OtherSpark:
    variable = f"TIDELOG_SPARK_{request.param.replace('.', '')}"
    python = os.environ.get(variable) or str(ROOT / f".tools/spark-{request.param}/bin/python")
    if not Path(python).exists():
        pytest.skip(f"no Spark {request.param}: set {variable} to an interpreter that has it")
    found = subprocess.run([python, "-c", HOME], capture_output=True, text=True, check=True)
    version, _, home = found.stdout.strip().partition(" ")
    assert version.startswith(f"{request.param}."), f"{python} has pyspark {version}"
    return OtherSpark(python, Path(home))


def test_the_core_of_the_zoo_restarts_in_another_process_and_is_right(
    other: OtherSpark, tmp_path: Path
) -> None:
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
