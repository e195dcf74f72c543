"""Executors in JVMs of their own are lost, and tasks fail, while a query runs: it goes on."""

import os
import random
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.spark.support.application import CLUSTER, Application, Job, settings
from tests.spark.support.census import assert_complete
from tests.spark.support.faults import OF_AN_EXECUTOR, SEGMENT, Faults, Rule, commit
from tests.spark.support.place import Place
from tests.spark.support.running import add
from tests.spark.support.zoo.all import QUERIES
from tests.spark.support.zoo.query import events, single
from tests.support.depth import only_in_depth

pytestmark = [pytest.mark.plugin_only, pytest.mark.usefixtures("spark_or_skip")]

ONE_EXECUTOR = "local-cluster[1,2,1024]"
KILLS = 15


def kill_all(application: Application) -> None:
    for pid in application.await_executors(1).values():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def writer_of(rule: Rule) -> str:
    """The executor whose upload the rule has caught."""
    marker = next(iter(rule.control.glob(f"{rule.name}.fired.*")))
    return Path(marker.read_text()).name.split("-")[1]


def test_executors_lost_in_any_phase_of_a_batch_do_not_end_the_running_query(
    place: Place, faulty_apart: Faults
) -> None:
    query = QUERIES["clumsy_totals"]
    batches = single(events(seed=61, batches=12, per_batch=20))
    add(place, batches)
    # Without segments the first two phases would be one.
    given = settings(faulty_apart.control, commit_bytes=0)
    job = Job(place, query.name, scheme="faulty")
    with Application((job,), given, ONE_EXECUTOR) as application:
        for phase, path in {
            "tasks have ended, nothing is durable": SEGMENT,
            "all is durable, nothing committed": commit(r"\d+"),
            "the next batch is planned": r"/checkpoint/offsets/\d+$",
        }.items():
            moment = faulty_apart.add("hold", "put", path, times=1)
            moment.await_fired()
            before = place.committed()
            kill_all(application)
            assert place.committed() == before, f"committed while {phase}"
            moment.release()
        application.finish()
    assert "this task fails once" in application.log()
    assert query.result(place.rows()) == query.expected(batches)
    assert_complete(place.checkpoint)


def test_an_executor_lost_while_it_stores_large_changelogs_costs_its_tasks_alone(
    place: Place, faulty_apart: Faults
) -> None:
    query = QUERIES["totals"]
    batches = single(events(seed=62, batches=6, per_batch=20))
    add(place, batches)
    all_are_large = settings(faulty_apart.control) | {"spark.tidelog.part.bytes": "1"}
    job = Job(place, query.name, scheme="faulty")
    with Application((job,), all_are_large, CLUSTER) as application:
        uploading = faulty_apart.add("hold", "put", OF_AN_EXECUTOR)
        uploading.await_fired()
        os.kill(application.executors()[writer_of(uploading)], signal.SIGKILL)
        uploading.release()
        application.finish()
    assert query.result(place.rows()) == query.expected(batches)
    assert_complete(place.checkpoint)


@only_in_depth("the test of executors lost in any phase")
def test_executors_killed_at_random_moments_do_not_end_the_running_query(
    place: Place, tmp_path: Path
) -> None:
    seed = int(os.environ.get("TIDELOG_SPARK_SEED", "20"))
    rng = random.Random(seed)
    query = QUERIES["totals"]
    batches = single(events(seed, batches=2 * KILLS + 2, per_batch=20))
    given = settings(tmp_path / "faults")
    follow = Job(place, query.name, scheme="faulty", follow=True)
    with Application((follow,), given, CLUSTER) as application:
        for kill in range(KILLS):
            add(place, batches[2 * kill : 2 * kill + 2])
            executors = application.await_executors(1)
            time.sleep(rng.uniform(0, 1))
            with suppress(ProcessLookupError):
                os.kill(rng.choice(sorted(executors.values())), signal.SIGKILL)
        add(place, batches[2 * KILLS :])
        application.await_batches(len(batches))
    assert query.result(place.rows()) == query.expected(batches), f"seed {seed}"
    assert_complete(place.checkpoint)


@only_in_depth("tests/spark/test_zoo.py shows queries in one process")
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
