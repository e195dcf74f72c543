"""Executors in JVMs of their own are lost, or their tasks fail, at chosen moments."""

import os
import signal
from pathlib import Path

import pytest

from tests.spark.support.application import CLUSTER, Application, Job, settings
from tests.spark.support.census import assert_complete
from tests.spark.support.faults import Faults, Rule, commit
from tests.spark.support.place import Place
from tests.spark.support.running import add
from tests.spark.support.zoo.all import QUERIES
from tests.spark.support.zoo.query import events, single

pytestmark = [pytest.mark.plugin_only, pytest.mark.usefixtures("spark_or_skip")]

OF_ANY_EXECUTOR = r"-\d+-\d{8}\.seg$"


def writer_of(rule: Rule) -> str:
    """The executor whose upload the rule has caught."""
    marker = next(iter(rule.control.glob(f"{rule.name}.fired.*")))
    return Path(marker.read_text()).name.split("-")[1]


def test_executors_lost_around_a_commit_cost_no_batch_and_no_record(
    place: Place, faulty_apart: Faults
) -> None:
    batches = single(events(seed=61, batches=12, per_batch=20))
    add(place, batches)
    job = Job(place, "totals", scheme="faulty")

    with Application((job,), settings(faulty_apart.control), CLUSTER, restarts=5) as application:
        uploading = faulty_apart.add("hold", "put", OF_ANY_EXECUTOR)
        uploading.await_fired()
        before = place.committed()
        os.kill(application.executors()[writer_of(uploading)], signal.SIGKILL)
        assert place.committed() == before, "what was not durable must not be committed"
        uploading.release()
        application.await_batches(3)

        # All of the batch is durable: this loss must not cost it.
        committing = faulty_apart.add("hold", "put", commit(r"\d+"), times=1)
        committing.await_fired()
        for pid in application.await_executors(1).values():
            os.kill(pid, signal.SIGKILL)
        committing.release()
        application.finish()

    query = QUERIES["totals"]
    assert query.result(place.rows()) == query.expected(batches)
    assert_complete(place.checkpoint)


def test_state_moves_between_executors_and_goes_on_in_another_application(
    tmp_path: Path, faulty_apart: Faults
) -> None:
    names = ["inner_join_format_3", "three_stateful_operators", "transform_with_state_in_pandas"]
    jobs = tuple(Job(Place(tmp_path / name), name) for name in names)
    inputs = {name: QUERIES[name].batches() for name in names}

    for half in (slice(0, 5), slice(5, None)):
        for job in jobs:
            add(job.place, inputs[job.query][half])
        with Application(jobs, settings(faulty_apart.control), CLUSTER) as application:
            application.finish()

    for job in jobs:
        query = QUERIES[job.query]
        assert query.result(job.place.rows()) == query.expected(inputs[job.query])
        assert_complete(job.place.checkpoint)


def test_a_failed_task_is_repeated_and_what_it_wrote_first_is_forgotten(
    place: Place, faulty_apart: Faults
) -> None:
    query = QUERIES["clumsy_totals"]
    batches = query.batches()
    add(place, batches)

    with Application(
        (Job(place, "clumsy_totals"),), settings(faulty_apart.control), "local[2,4]"
    ) as application:
        application.finish()

    assert "this task fails once" in application.log()
    assert query.result(place.rows()) == query.expected(batches)
    assert_complete(place.checkpoint)
