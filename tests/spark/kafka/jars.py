"""Spark's source for Kafka."""

from pathlib import Path

from tests.support.maven import jars_of

_POM = Path(__file__).parent / "pom.xml"
_VERSION = "4.2.0"
"""Newer Sparks run with it too; their own may come to the repositories months after them."""


def kafka_source_jars() -> list[Path]:
    """The jars to put beside Spark's own; raises JarsUnavailableError."""
    return jars_of(_POM, f"spark-kafka-{_VERSION}", spark_version=_VERSION)
