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


def source_jars(version: str = _VERSION) -> str:
    """Spark's source for Kafka, for `spark.jars`; skips the test where it cannot be had."""
    try:
        jars = jars_of(_POM, f"spark-kafka-{version}", spark_version=version)
    except JarsUnavailableError as error:
        pytest.skip(str(error))
    return ",".join(map(str, jars))


@pytest.fixture
def given(tmp_path: Path) -> dict[str, str]:
    """Settings of applications."""
    jars = source_jars()
    found = settings(tmp_path / "faults")
    return found | {"spark.jars": f"{found['spark.jars']},{jars}"}
