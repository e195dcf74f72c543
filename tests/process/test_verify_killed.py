"""What a job leaves when it is killed -9 verifies: every retained checkpoint, at any moment."""

import json
import random
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from tests.process.harness import Run, killed_at_last, wait_until
from tests.process.test_kill import LINES, SEED, write_events, write_words
from tests.support.cli import tidelog
from tests.support.depth import more_in_depth

RETAINED = 6
KILLS = more_in_depth(1, 2)

WRITE: dict[str, Callable[[Run], object]] = {
    "wordcount": lambda run: write_words(run, LINES),
    "windows": write_events,
}


def verify(run: Run) -> None:
    """`tidelog verify` without Spark: nothing is wrong, and nothing is left out."""
    done = tidelog("verify", run.store, "--engine", "local", "--json")
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document["passed"] and document["problems"] == []
    assert {each["verdict"] for each in document["checkpoints"]} == {"sound"}
    assert document["newest_sound"] == document["checkpoints"][-1]["checkpoint"]
    assert all(each["redundancy"]["different"] == 0 for each in document["checkpoints"])
    named = {path.stem for path in Path(run.store, "checkpoints").glob("*.json")}
    assert {f"{each['checkpoint']:08d}" for each in document["checkpoints"]} <= named
    inspected = tidelog("inspect", run.store, "--deep", "--json")
    assert inspected.exit_code == 0, inspected.output


@pytest.mark.parametrize(
    ("job", "table"),
    more_in_depth([("windows", "rocksdb")], [*product(WRITE, ["rocksdb", "memory"])]),
)
def test_every_checkpoint_of_a_job_killed_again_and_again_verifies(
    tmp_path: Path, job: str, table: str
) -> None:
    options = ("--parallelism", "2", "--retain", str(RETAINED), "--table", table)
    run = Run(tmp_path, f"tests.process.jobs:{job}", options)
    WRITE[job](run)
    rng = random.Random(f"{SEED} {job} {table}")
    for _ in range(KILLS):
        with killed_at_last(run.start()) as process:
            slots = run.slots() + 4
            wait_until(lambda slots=slots: run.slots() >= slots, process)  # type: ignore[misc]
            time.sleep(rng.uniform(0, 0.3))
        verify(run)
    run.release()
    run.finish_here()
    verify(run)
    assert tidelog("sweep", run.store, "--dry-run").exit_code == 0
