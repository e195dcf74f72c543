"""Checkpoint prefixes that are emptied, set back, copied and moved on S3, within one session."""

from pathlib import Path

from tests.spark.s3a.conftest import ADVISED, LoggedServer, s3a_options
from tests.spark.support import stores
from tests.spark.support.application import LOCAL
from tests.spark.support.stories import run_apart


def test_every_story_holds(logged: LoggedServer, s3a_jars: list[Path], tmp_path: Path) -> None:
    hadoop = s3a_options(logged.server) | ADVISED
    given = stores.store_settings() | stores.EAGER
    given["spark.jars"] = ",".join([given["spark.jars"], *map(str, s3a_jars)])
    given |= {f"spark.hadoop.{key}": value for key, value in hadoop.items()}
    run_apart(f"s3a://{logged.server.bucket}/directories", tmp_path, given, LOCAL)
