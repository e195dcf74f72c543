"""A broker, and a Spark with its source for Kafka."""

from pathlib import Path

import pytest

from tests.kafka.conftest import topics
from tests.spark.support.application import settings
from tests.support.maven import JarsUnavailableError, jars_of

__all__ = ["topics"]

_POM = Path(__file__).parent / "pom.xml"
_VERSION = "4.2.0"
"""Newer Sparks run with it too; their own may come to the repositories months after them."""


@pytest.fixture
def given(tmp_path: Path) -> dict[str, str]:
    """Settings of applications; skipped, with the reason, where Spark's source cannot be had."""
    try:
        jars = jars_of(_POM, f"spark-kafka-{_VERSION}", spark_version=_VERSION)
    except JarsUnavailableError as error:
        pytest.skip(str(error))
    found = settings(tmp_path / "faults")
    return found | {"spark.jars": ",".join([found["spark.jars"], *map(str, jars)])}
