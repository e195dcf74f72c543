"""Checkpoint directories that are removed, set back, copied and moved within one session."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.support.application import CLUSTER
from tests.spark.support.applications import settings
from tests.spark.support.stories import STORIES, Stage, run_apart

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.plugin_only


@pytest.mark.parametrize("scheme", ["file", "faulty"])
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_in_one_session(
    spark: "SparkSession", tmp_path: Path, story: Callable[[Stage], None], scheme: str
) -> None:
    story(Stage(spark, f"{scheme}://{tmp_path}/checkpoints", tmp_path))


@pytest.mark.usefixtures("spark_or_skip")
def test_with_two_executor_processes(tmp_path: Path) -> None:
    run_apart(f"file://{tmp_path}/checkpoints", tmp_path, settings(tmp_path / "faults"), CLUSTER)
