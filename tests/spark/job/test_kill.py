"""A query that is killed writes what the embedded job writes, each record once."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.process.harness import started, wait_until
from tests.spark.job import jobs
from tests.spark.support.application import CLUSTER, LOCAL
from tests.spark.support.place import Place
from tests.spark.support.session import BASE, PATIENCE_S, ROOT
from tests.support.depth import only_in_depth
from tests.support.pipelines import run
from tidelog.runtime.config import JobArguments
from tidelog.storage.memory import MemoryStore

OUTPUTS = ("session", "streaks", "several")


def written(place: Place, parts: int) -> None:
    for rows in jobs.batches(parts=parts):
        place.add("source", rows)


def query_settings(master: str = LOCAL) -> list[str]:
    """Options for a small Spark."""
    conf = {**BASE, "spark.sql.shuffle.partitions": "2"}
    settings = [text for name, value in conf.items() for text in ("--conf", f"{name}={value}")]
    return ["--master", master, *settings]


@contextmanager
def query(
    place: Place, job: str, *options: str, master: str = LOCAL
) -> Iterator["subprocess.Popen[str]"]:
    """The command with a checkpoint in a place; killed in the end with all that it has started."""
    process = started(
        *("spark", "run", job, "--checkpoint", str(place.checkpoint), "--available-now"),
        *(*query_settings(master), *options),
        env={**os.environ, "PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1"},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=PATIENCE_S)


@pytest.mark.parametrize(
    "master", [LOCAL, pytest.param(CLUSTER, marks=only_in_depth("executors are processes"))]
)
def test_a_query_killed_in_its_first_batch_and_after_it_gives_what_the_embedded_job_gives(
    master: str, place: Place, spark_or_skip: None
) -> None:
    written(place, parts=3)
    source, output = place.source("source").parent, place.root / "spark"
    options = ("--input", str(source), "--output", str(output), "--files-per-batch", "1")
    for moment in ("offsets/0", "commits/0"):
        with query(place, "tests.spark.job.jobs:mixed", *options, master=master) as process:
            wait_until((place.checkpoint / moment).exists, process)
    with query(place, "tests.spark.job.jobs:mixed", *options, master=master) as process:
        said, errors = process.communicate(timeout=PATIENCE_S)
        assert (process.returncode, said) == (0, "ended\n"), errors
    run(jobs.mixed(JobArguments(str(source), str(place.root / "embedded"))), MemoryStore())
    for name in OUTPUTS:
        expected = jobs.compared(jobs.lines_of(place.root / "embedded" / name), name)
        assert expected, name
        assert jobs.compared(jobs.lines_of(output / name), name) == expected, name
