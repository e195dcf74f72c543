"""Checkpoint directories that are removed, set back, copied and moved within one session."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.support import stories
from tests.spark.support.application import CLUSTER, settings
from tests.spark.support.stories import STORIES, Stage, run_apart
from tests.support.depth import more_in_depth, only_in_depth

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.plugin_only

USUAL = [
    stories.a_directory_is_removed_and_used_again,
    stories.a_query_is_set_back_by_two_batches,
    stories.a_copy_goes_on_as_well_as_its_original,
]


@pytest.mark.parametrize("scheme", more_in_depth(["file"], ["file", "faulty"]))
@pytest.mark.parametrize(
    "story", more_in_depth(USUAL, STORIES), ids=lambda story: str(story.__name__)
)
def test_in_one_session(
    spark: "SparkSession", tmp_path: Path, story: Callable[[Stage], None], scheme: str
) -> None:
    story(Stage(spark, f"{scheme}://{tmp_path}/checkpoints", tmp_path))


@only_in_depth("test_in_one_session has the same stories")
@pytest.mark.usefixtures("spark_or_skip")
def test_with_two_executor_processes(tmp_path: Path) -> None:
    run_apart(f"file://{tmp_path}/checkpoints", tmp_path, settings(tmp_path / "faults"), CLUSTER)
