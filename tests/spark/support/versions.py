"""The other supported versions of Spark, each with an interpreter of its own.

`TIDELOG_SPARK_41` and `TIDELOG_SPARK_42` name interpreters that have that pyspark and what tidelog
needs; without them `.tools/spark-4.1/bin/python` and so on are tried.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.spark.support.session import ROOT
from tidelog.spark.plugin.toolchain import find_spark

_HOME = "import pathlib, pyspark; print(pyspark.__version__, pathlib.Path(pyspark.__file__).parent)"


class SparkVersion(NamedTuple):
    python: str
    home: Path


def this_version() -> SparkVersion:
    """That of the tests themselves."""
    return SparkVersion(sys.executable, find_spark().home)


def other_version(number: str) -> SparkVersion:
    """One such as 4.1; skips the test where it is not installed."""
    variable = f"TIDELOG_SPARK_{number.replace('.', '')}"
    python = os.environ.get(variable) or str(ROOT / f".tools/spark-{number}/bin/python")
    if not Path(python).exists():
        pytest.skip(f"no Spark {number}: set {variable} to an interpreter that has it")
    found = subprocess.run([python, "-c", _HOME], capture_output=True, text=True, check=True)
    version, _, home = found.stdout.strip().partition(" ")
    assert version.startswith(f"{number}."), f"{python} has pyspark {version}"
    return SparkVersion(python, Path(home))
