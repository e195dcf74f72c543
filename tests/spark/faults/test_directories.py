"""Checkpoint directories that are used again in one session; all stories: `test_directories.py`
beside this folder.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.support import stories
from tests.spark.support.stories import Stage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.plugin_only
@pytest.mark.parametrize(
    "story",
    [
        stories.a_directory_is_removed_and_used_again,
        stories.a_query_is_set_back_by_two_batches,
        stories.a_copy_goes_on_beside_its_original,
    ],
)
def test_in_one_session(
    spark: "SparkSession", tmp_path: Path, story: Callable[[Stage], None]
) -> None:
    story(Stage(spark, f"file://{tmp_path}/checkpoints", tmp_path))
