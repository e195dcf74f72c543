"""What tests of the jar need: a Spark and a Java on this machine, or what looks like them."""

from pathlib import Path

import pytest

from tidelog.errors import ConfigError
from tidelog.spark.plugin.toolchain import Spark, find_java, find_spark


def installed_spark() -> Spark:
    """The Spark of this environment; skips the test, with the reason, without Spark or Java."""
    try:
        find_java()
        return find_spark()
    except ConfigError as error:
        pytest.skip(str(error))


def fake_java(home: Path, script: str) -> None:
    """A `JAVA_HOME` whose java is this script of a shell."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(0o755)


def fake_spark(home: Path, version: str = "4.3.0", scala: str = "2.13.18") -> Path:
    """A directory that looks like an installed Spark."""
    jars = home / "jars"
    jars.mkdir(parents=True)
    for name in (f"spark-core_2.13-{version}.jar", f"scala-compiler-{scala}.jar"):
        (jars / name).touch()
    return home
