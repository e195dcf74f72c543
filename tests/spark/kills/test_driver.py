"""The driver's machine is lost at chosen and at random moments; the query goes on as if nothing
had happened."""

import os
import random
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.spark.support.application import Application, Job, settings
from tests.spark.support.census import assert_complete
from tests.spark.support.faults import ROLL_UP, SEGMENT, Faults, commit
from tests.spark.support.place import Place
from tests.spark.support.running import add
from tests.spark.support.session import TEST_S
from tests.spark.support.zoo.all import QUERIES
from tests.spark.support.zoo.joins import batches_of
from tests.spark.support.zoo.query import events, single

pytestmark = [pytest.mark.plugin_only, pytest.mark.usefixtures("spark_or_skip")]

MOMENTS = {
    "before the barrier, changelogs on their way": ("hold", "put", SEGMENT),
    "in the barrier, some changelogs durable": ("hold-after", "put", SEGMENT),
    "after the barrier, commit not written": ("hold", "put", commit(r"\d+")),
    "with the commit written, its answer not seen": ("hold-after", "put", commit(r"\d+")),
    "between two batches": ("hold", "put", r"/checkpoint/offsets/\d+$"),
    "while a roll-up is written": ("hold", "put", ROLL_UP),
    "with the roll-up written": ("hold-after", "put", ROLL_UP),
    "while a segment is removed": ("hold", "delete", SEGMENT),
}


def test_a_driver_killed_at_any_step_of_a_commit_is_continued_by_the_next(
    place: Place, faulty_apart: Faults
) -> None:
    batches = single(events(seed=51, batches=24, per_batch=10))
    add(place, batches)
    job = Job(place, "totals", scheme="faulty")
    given = settings(faulty_apart.control)
    for action, op, path in MOMENTS.values():
        moment = faulty_apart.add(action, op, path)
        with Application((job,), given) as application:
            moment.await_fired()
            application.kill()
        faulty_apart.clear()
    with Application((job,), given) as application:
        application.finish()
    query = QUERIES["totals"]
    assert query.result(place.rows()) == query.expected(batches)
    assert_complete(place.checkpoint)


def test_of_two_drivers_on_one_checkpoint_the_one_that_commits_first_goes_on(
    place: Place, faulty_apart: Faults
) -> None:
    query = QUERIES["totals"]
    batches = query.batches()
    add(place, batches[:6])
    job = Job(place, "totals", scheme="faulty")
    given = settings(faulty_apart.control)
    late = faulty_apart.add("hold", "put", commit(3), times=1)
    with Application((job,), given) as slow:
        late.await_fired()
        with Application((job,), given, log_name="second.log") as quick:
            quick.finish()
        late.release()
        assert "expected no such file" in slow.fails()
    assert place.committed()[-1] == 5
    add(place, batches[6:])
    with Application((job,), given) as third:
        third.finish()
    assert query.result(place.rows()) == query.expected(batches)
    assert_complete(place.checkpoint)


def test_a_snapshot_that_was_being_uploaded_is_taken_again_by_the_next_run(
    place: Place, faulty_apart: Faults
) -> None:
    query = QUERIES["totals"]
    batches = query.batches()
    job = Job(place, query.name, scheme="faulty")
    prefix = "spark.sql.streaming.stateStore"
    given = settings(faulty_apart.control) | {f"{prefix}.maintenanceInterval": "1h"}

    def run() -> Application:
        return Application((job,), given)

    def snapshots() -> set[str]:
        return {str(file.parent) for file in (place.checkpoint / "state").rglob("*.zip")}

    add(place, batches[:5])
    with run() as first:
        first.finish()
    assert not snapshots(), "the first run has nothing that is late"
    add(place, batches[5:6])
    uploading = faulty_apart.add("hold", "put", r"\.zip$")
    with run() as killed:
        uploading.await_fired()
        killed.kill()
    faulty_apart.clear()
    add(place, batches[6:])
    with run() as last:
        last.finish()
    assert len(snapshots()) == 3
    assert query.result(place.rows()) == query.expected(batches)
    assert_complete(place.checkpoint)


MANY = int(os.environ.get("TIDELOG_SPARK_KILLS", "1"))

SEED = int(os.environ.get("TIDELOG_SPARK_SEED", "20"))
DRIVER_KILLS = 8 * MANY


@pytest.mark.timeout(TEST_S * MANY)
def test_drivers_killed_at_random_moments_change_nothing(place: Place, tmp_path: Path) -> None:
    rng = random.Random(SEED + 1)
    batches = batches_of(SEED, 4 * DRIVER_KILLS)
    given = settings(tmp_path / "faults")
    job = Job(place, "inner_join_format_2", scheme="faulty", follow=True)
    for kill in range(DRIVER_KILLS):
        add(place, batches[4 * kill : 4 * kill + 4])
        done = place.committed()
        with Application((job,), given) as application:
            application.await_batches((done[-1] if done else -1) + 2)
            time.sleep(rng.uniform(0, 1))
            rng.choice([application.kill, application.kill_driver])()
    add(place, batches[4 * DRIVER_KILLS :])
    with Application((replace(job, follow=False),), given) as application:
        application.finish()
    query = QUERIES[job.query]
    assert query.result(place.rows()) == query.expected(batches), f"seed {SEED}"
    assert_complete(place.checkpoint)
