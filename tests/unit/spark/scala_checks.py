"""Compiles the plug-in and its Scala checks, once per test run, with the installed Spark."""

import fcntl
import json
import os
import subprocess
from pathlib import Path

from tests.unit.spark.spark_home import installed_spark
from tidelog.spark.compiler import compile_jar
from tidelog.spark.toolchain import Spark, find_java

ROOT = Path(__file__).parents[3]
LOGGING = Path(__file__).parent / "log4j2.properties"
GOLDEN = ROOT / "tests" / "golden"
_SOURCES = ROOT / "native" / "spark-state-store" / "src"
_CHECKS = ("Checks.scala", "format/*.scala", "core/*.scala")


class ScalaChecks:
    """The compiled checks; `run` starts one of their main objects."""

    def __init__(self, spark: Spark, jar: Path) -> None:
        self._classpath = os.pathsep.join([spark.classpath, str(jar)])

    def outcomes(self, name: str, *arguments: Path) -> dict[str, str | None]:
        """Why a check of a main object failed, or None, by the check's name."""
        lines = [line for line in self.run(name, *arguments).splitlines() if line.startswith("{")]
        results = [json.loads(line) for line in lines]
        return {result["check"]: result["failure"] for result in results}

    def run(self, name: str, *arguments: Path) -> str:
        """Standard output of an object's main method, which must succeed."""
        command = [str(find_java()), "-Xmx512m", f"-Dlog4j2.configurationFile={LOGGING}"]
        command += ["-cp", self._classpath]
        command += [f"tidelog.spark.{name}", *map(str, arguments)]
        run = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
        assert run.returncode == 0, run.stdout + run.stderr
        return run.stdout


def compiled_checks(folder: Path) -> ScalaChecks:
    """The checks as a jar in `folder`, which the workers of a test run share; skips the test, with
    the reason, without Spark or Java.
    """
    spark = installed_spark()
    jar = folder / "scala-checks.jar"
    with (folder / "scala-checks.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not jar.exists():
            plugin = sorted((_SOURCES / "main" / "scala").rglob("*.scala"))
            below = _SOURCES / "test" / "scala" / "tidelog" / "spark"
            checks = [path for pattern in _CHECKS for path in sorted(below.glob(pattern))]
            compile_jar([*plugin, *checks], [], jar, spark=spark)
    return ScalaChecks(spark, jar)
