"""What killed jobs and killed drivers leave verifies, and both engines say the same of it."""

import json
from contextlib import suppress
from pathlib import Path
from shutil import copy2, copytree
from typing import TYPE_CHECKING, Any

import pytest

from tests.process.harness import Run, killed_at_last, wait_until
from tests.process.test_kill import write_words
from tests.spark.support.faults import SEGMENT, Faults, commit
from tests.spark.support.place import Place
from tests.spark.support.running import add, finish, start
from tests.spark.support.zoo.aggregations import TOTALS
from tests.spark.support.zoo.query import events, single
from tests.support.cli import tidelog
from tests.support.depth import more_in_depth

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def verified(location: Path | str, engine: str) -> dict[str, Any]:
    """The document of a verification that passed; the engine is no part of it."""
    result = tidelog("verify", location, "--engine", engine, "--json")
    assert result.exit_code == 0, result.output
    document: dict[str, Any] = json.loads(result.stdout)
    assert document.pop("engine") == engine
    assert document["problems"] == [] and document["passed"]
    return document


def test_both_engines_find_every_checkpoint_of_a_killed_job_sound(
    spark: "SparkSession", tmp_path: Path
) -> None:
    options = ("--parallelism", "2", "--retain", "5")
    run = Run(tmp_path, "tests.process.jobs:wordcount", options)
    write_words(run, 2_500)
    for _ in range(more_in_depth(1, 2)):
        slots = run.slots() + 4
        with killed_at_last(run.start()) as process:
            wait_until(lambda slots=slots: run.slots() >= slots, process)  # type: ignore[misc]
        by_spark, here = verified(run.store, "spark"), verified(run.store, "local")
        assert by_spark == here
        assert {each["verdict"] for each in here["checkpoints"]} == {"sound"}
        assert here["checkpoints"][-1]["rows"] > 0


MOMENTS = {
    "some changelogs durable, no commit": ("hold-after", "put", SEGMENT),
    "the commit written, its answer not seen": ("hold-after", "put", commit(r"\d+")),
}


def copy_if_there(source: str, target: str) -> None:
    """A snapshot of the state that is being written has another name first."""
    with suppress(FileNotFoundError):
        copy2(source, target)


@pytest.mark.plugin_only
def test_both_engines_find_every_batch_sound_of_what_is_there_at_the_worst_moments(
    spark: "SparkSession", place: Place, tmp_path: Path, faulty: Faults
) -> None:
    batches = single(events(seed=71, batches=5, per_batch=10))
    # House-keeping that removes files would not stop for a copy.
    spark.conf.set("spark.sql.streaming.minBatchesToRetain", "100")
    checkpoint = f"faulty://{place.checkpoint}"
    add(place, batches[:4])
    finish(spark, TOTALS, place, checkpoint)
    add(place, batches[4:])
    rules = [faulty.add(*moment) for moment in MOMENTS.values()]
    query = start(spark, TOTALS, place, checkpoint=checkpoint)
    for number, rule in enumerate(rules):
        rule.await_fired()
        copytree(place.checkpoint, tmp_path / f"left-{number}", copy_function=copy_if_there)
        rule.release()
    query.awaitTermination()
    assert [assert_sound(tmp_path / f"left-{number}") for number in range(2)] == [3, 4]


def assert_sound(checkpoint: Path) -> int:
    """Both engines find the batches of a checkpoint sound; the newest of them."""
    by_spark, here = verified(checkpoint, "spark"), verified(checkpoint, "local")
    assert by_spark == here
    newest = max(int(file.name) for file in (checkpoint / "commits").glob("[0-9]*"))
    assert here["checkpoints"][-1]["checkpoint"] == newest == here["newest_sound"]
    # Spark cleans up state a little before it purges the commits that name it.
    assert {each["verdict"] for each in here["checkpoints"]} <= {"sound", "expired"}
    return newest
