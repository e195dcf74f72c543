"""Hadoop's S3A client for the installed Spark."""

import re
from pathlib import Path

from tests.support.maven import JarsUnavailableError, jars_of
from tidelog.spark.plugin.toolchain import find_spark

_POM = Path(__file__).parent / "pom.xml"
_AWS_SDK = {"3.4.2": "2.29.52", "3.5.0": "2.35.4"}
"""The SDK that each version of Hadoop was released with."""


def s3a_jars() -> list[Path]:
    """The jars to put beside Spark's own; raises JarsUnavailableError."""
    hadoop = _hadoop_version(find_spark().home)
    return jars_of(_POM, f"s3a-{hadoop}", hadoop_version=hadoop, aws_sdk_version=_AWS_SDK[hadoop])


def _hadoop_version(spark_home: Path) -> str:
    names = [path.name for path in (spark_home / "jars").glob("hadoop-client-api-*.jar")]
    found = [match[1] for match in map(re.compile(r".*-([\d.]+)\.jar").fullmatch, names) if match]
    if len(found) != 1 or found[0] not in _AWS_SDK:
        raise JarsUnavailableError(f"no AWS SDK is known for the Hadoop of this Spark: {names}")
    return found[0]
