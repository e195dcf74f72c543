"""A broker, and a Spark with its source for Kafka."""

from pathlib import Path

import pytest

from tests.kafka.conftest import topics
from tests.spark.kafka.jars import kafka_source_jars
from tests.spark.support.applications import settings
from tests.support.maven import JarsUnavailableError

__all__ = ["topics"]


@pytest.fixture
def given(tmp_path: Path) -> dict[str, str]:
    """Settings of applications; skipped, with the reason, where Spark's source cannot be had."""
    try:
        jars = kafka_source_jars()
    except JarsUnavailableError as error:
        pytest.skip(str(error))
    found = settings(tmp_path / "faults")
    return found | {"spark.jars": ",".join([found["spark.jars"], *map(str, jars)])}
