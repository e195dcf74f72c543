"""Spark's classes in a form that a JVM maps into memory, and options with which it starts fast: in
a third of the CPU time.

A JVM makes the archive at the end of a first, small run. It is kept in the plug-in's cache under a
name that says of which jars and which Java it is; a JVM that it does not fit goes without.
"""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

from tests.spark.support.session import QUICK_JVM
from tests.support.made_once import by_one_process
from tidelog.effects import cache_directory
from tidelog.spark.plugin.settings import end_jvm
from tidelog.spark.plugin.toolchain import find_java, find_spark

VARIABLE = "SPARK_SUBMIT_OPTS"
"""Options of every JVM that a Python process starts for Spark; what the user has there stays."""
QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
ROOT = Path(__file__).parents[3]


def use_shared_classes() -> None:
    """In all JVMs that this process, and the ones that it starts, start from now on for Spark."""
    if VARIABLE not in os.environ and (archive := _archive()).is_file():
        os.environ[VARIABLE] = f"-XX:SharedArchiveFile={archive} {QUIET} {QUICK_JVM}"


def _archive() -> Path:
    """The path of the class archive, which the first process that asks for it creates."""
    java = find_java().resolve()
    digest = hashlib.sha256(f"{java} {java.stat().st_mtime_ns}".encode())
    for jar in sorted((find_spark().home / "jars").glob("*.jar")):
        digest.update(f"{jar} {jar.stat().st_size} {jar.stat().st_mtime_ns}\n".encode())
    archive = cache_directory() / f"spark-classes-{digest.hexdigest()[:16]}.jsa"
    with by_one_process("spark-classes"):
        if not archive.exists():
            _make(archive)
    return archive


def _make(archive: Path) -> None:
    made = archive.with_suffix(f".{os.getpid()}")
    options = f"-XX:ArchiveClassesAtExit={made} {QUIET}"
    command = [sys.executable, "-m", "tests.spark.support.shared_classes"]
    environment = {**os.environ, VARIABLE: options, "PYTHONPATH": str(ROOT)}
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=False)
    if run.returncode == 0 and made.exists():
        made.replace(archive)
    made.unlink(missing_ok=True)


def main() -> None:
    """Use of Spark what most tests do, and let its JVM end in peace."""
    from tests.spark.support.session import build  # noqa: PLC0415  (needs pyspark)

    session = build("local[2]", {})
    context = type(session.sparkContext)
    session.range(10).groupBy("id").count().collect()
    session.stop()
    end_jvm(context)


if __name__ == "__main__":
    main()
