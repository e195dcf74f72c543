"""Compiles the Scala checks of the plug-in with the installed Spark, kept by their hash."""

import hashlib
import json
import os
import subprocess
from pathlib import Path

from tests.support.made_once import by_one_process
from tests.unit.spark.spark_home import installed_spark
from tidelog.effects import cache_directory
from tidelog.spark.plugin.jar import compile_jar, plugin_jar
from tidelog.spark.plugin.toolchain import Spark, find_java

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests" / "golden"
_SOURCES = ROOT / "native" / "spark-state-store" / "src"
_LOGGING = _SOURCES / "test" / "resources" / "log4j2.properties"
SOURCES = _SOURCES / "test" / "scala" / "tidelog" / "spark"
_STARTS_FAST = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_CHECKS = ("Checks.scala", "format/*.scala", "core/*.scala", "faults/LightLocalFs.scala")


class ScalaChecks:
    """The compiled checks; `run` starts one of their main objects."""

    def __init__(self, spark: Spark, jars: list[Path]) -> None:
        self._classpath = os.pathsep.join([spark.classpath, *map(str, jars)])

    def outcomes(self, name: str, *arguments: Path) -> dict[str, str | None]:
        """Why a check of a main object failed, or None, by the check's name."""
        lines = [line for line in self.run(name, *arguments).splitlines() if line.startswith("{")]
        results = [json.loads(line) for line in lines]
        return {result["check"]: result["failure"] for result in results}

    def run(self, name: str, *arguments: Path) -> str:
        """Standard output of an object's main method, which must succeed."""
        command = [
            *(str(find_java()), "-Xmx512m", *_STARTS_FAST),
            *(f"-Dlog4j2.configurationFile={_LOGGING}", "-cp", self._classpath),
            *(f"tidelog.spark.{name}", *map(str, arguments)),
        ]
        run = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
        assert run.returncode == 0, run.stdout + run.stderr
        return run.stdout


def compiled_checks() -> ScalaChecks:
    """The checks as a jar, compiled unless an earlier run did; skips the test, with the reason,
    without Spark or Java.
    """
    spark = installed_spark()
    with by_one_process("plugin"):
        plugin = plugin_jar()
    sources = [path for pattern in _CHECKS for path in sorted(SOURCES.glob(pattern))]
    digest = hashlib.sha256(plugin.name.encode())
    for path in sources:
        digest.update(path.read_bytes())
    jar = cache_directory() / f"scala-checks-{digest.hexdigest()[:16]}.jar"
    with by_one_process("scala-checks"):
        if not jar.exists():
            compile_jar(sources, [plugin], jar, spark=spark)
    return ScalaChecks(spark, [plugin, jar])
