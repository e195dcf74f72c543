"""Hadoop's S3A client for the installed Spark, fetched once with Maven and kept in `.tools/`."""

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from tidelog.spark.plugin.toolchain import find_spark

_TOOLS = Path(__file__).parents[3] / ".tools"
_POM = Path(__file__).parent / "pom.xml"
_AWS_SDK = {"3.4.2": "2.29.52", "3.5.0": "2.35.4"}
"""The SDK that each version of Hadoop was released with."""


class JarsUnavailableError(Exception):
    """This machine cannot get the jars; the message says why."""


def s3a_jars() -> list[Path]:
    """The jars to put beside Spark's own; raises JarsUnavailableError."""
    hadoop = _hadoop_version(find_spark().home)
    directory = _TOOLS / f"s3a-{hadoop}"
    if not directory.is_dir():
        _fetch(hadoop, directory)
    return sorted(directory.glob("*.jar"))


def _hadoop_version(spark_home: Path) -> str:
    names = [path.name for path in (spark_home / "jars").glob("hadoop-client-api-*.jar")]
    found = [match[1] for match in map(re.compile(r".*-([\d.]+)\.jar").fullmatch, names) if match]
    if len(found) != 1 or found[0] not in _AWS_SDK:
        raise JarsUnavailableError(f"no AWS SDK is known for the Hadoop of this Spark: {names}")
    return found[0]


def _fetch(hadoop: str, directory: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise JarsUnavailableError("hadoop-aws has to be fetched and there is no `mvn` on the PATH")
    _TOOLS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_TOOLS) as scratch:
        jars = Path(scratch) / "jars"
        command = [
            *(maven, "-q", "-B", "-f", str(_POM), "dependency:copy-dependencies"),
            *(f"-Dhadoop.version={hadoop}", f"-Daws.sdk.version={_AWS_SDK[hadoop]}"),
            f"-DoutputDirectory={jars}",
        ]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode != 0:
            raise JarsUnavailableError(f"hadoop-aws could not be fetched: {run.stdout[-500:]}")
        if not directory.is_dir():  # another process may have been first
            jars.rename(directory)
