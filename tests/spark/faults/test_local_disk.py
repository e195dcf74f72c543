"""The local disk of an executor is full."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.support.application import Application, Job, settings
from tests.spark.support.census import assert_complete
from tests.spark.support.faults import Faults, commit
from tests.spark.support.place import Place
from tests.spark.support.running import add, finish
from tests.spark.support.zoo.aggregations import TOTALS
from tests.support.depth import only_in_depth

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.plugin_only

DISK_MB = 64


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own; skipped where this process may not mount one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root with the right to mount can make a small disk")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def fill(disk: Path) -> None:
    with (disk / "filler").open("wb", buffering=0) as filler:
        try:
            while filler.write(b"\0" * 4096):
                pass
        except OSError as full:
            assert "No space left" in str(full)


@only_in_depth(
    "test_a_batch_that_cannot_be_stored_is_not_committed_and_runs_again has a full store"
)
def test_a_query_whose_local_disk_is_full_fails_and_goes_on_when_there_is_room(
    spark: "SparkSession", place: Place, small_disk: Path, tmp_path: Path
) -> None:
    batches = TOTALS.batches()
    add(place, batches)
    faults = Faults(tmp_path / "faults")
    given = {**settings(faults.control), "spark.local.dir": str(small_disk)}
    job = Job(place, "totals", scheme="faulty")
    reached = faults.add("hold", "put", commit(3), times=1)

    with Application((job,), given) as application:
        reached.await_fired()
        fill(small_disk)
        reached.release()
        assert "No space left on device" in application.fails()
    committed = place.committed()[-1]
    assert committed < len(batches) - 1

    (small_disk / "filler").unlink()
    finish(spark, TOTALS, place, f"faulty://{place.checkpoint}")
    assert TOTALS.result(place.rows()) == TOTALS.expected(batches)
    assert_complete(place.checkpoint)
