"""Drivers are killed at random moments; the result is what one computation over all
input gives.

The moments are drawn from a seed that a failure shows: `TIDELOG_SPARK_SEED` repeats them as far as
the machine's speed allows. `TIDELOG_SPARK_KILLS=3` kills three times as often.
"""

import os
import random
import time
from pathlib import Path

import pytest

from tests.spark.support.application import Application, Job, settings
from tests.spark.support.census import assert_complete
from tests.spark.support.place import Place
from tests.spark.support.running import add
from tests.spark.support.session import TEST_S
from tests.spark.support.zoo.all import QUERIES
from tests.spark.support.zoo.joins import batches_of
from tests.spark.support.zoo.query import Batch

MANY = int(os.environ.get("TIDELOG_SPARK_KILLS", "1"))
pytestmark = [
    pytest.mark.plugin_only,
    pytest.mark.usefixtures("spark_or_skip"),
    pytest.mark.timeout(TEST_S * MANY),
]

SEED = int(os.environ.get("TIDELOG_SPARK_SEED", "20"))
DRIVER_KILLS = 8 * MANY


def finished(place: Place, name: str, batches: list[Batch], given: dict[str, str]) -> None:
    """An application reads the rest; the result is that of all input."""
    with Application((Job(place, name, scheme="faulty"),), given) as application:
        application.finish()
    query = QUERIES[name]
    assert query.result(place.rows()) == query.expected(batches), f"seed {SEED}"
    assert_complete(place.checkpoint)


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
    finished(place, job.query, batches, given)
