"""Spark sessions for tests: small, quiet, deterministic.

Imported by the applications that tests start with other interpreters too: needs pyspark only.
"""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[3]
SOURCES = f"{ROOT}{os.pathsep}{ROOT / 'src'}"
"""Where any interpreter finds the tests and tidelog."""

PATIENCE_S = 600
"""How long tests wait for one step of an application, such as its start: on the busiest machine
only what hangs takes so long."""

TEST_S = 1800
"""For a test, which may run ten applications one after another."""

QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Djdk.lang.Process.launchMechanism=VFORK"
"""Starts fast, and so do the processes that Hadoop starts for a file; no test is long enough to
gain from the second compiler."""

SMALL_JVM = f"{QUICK_JVM} -Xss4m"

BASE = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": SMALL_JVM,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.extraJavaOptions": SMALL_JVM,
    "spark.executorEnv.PYTHONPATH": SOURCES,
    "spark.sql.shuffle.partitions": "3",
    "spark.default.parallelism": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.streaming.stopTimeout": "60s",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "false",
    "spark.python.worker.faulthandler.enabled": "false",
}


def build(master: str, settings: dict[str, str], log_level: str = "ERROR") -> "SparkSession":
    """A session that has nothing from another one; stops the one that runs."""
    from pyspark.sql import SparkSession  # noqa: PLC0415  (the tests skip without it)

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = SOURCES  # Python workers unpickle functions by their module
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if (running := SparkSession.getActiveSession()) is not None:
        running.stop()
    builder = SparkSession.builder.master(master).appName("tidelog tests")
    for key, value in {**BASE, **settings}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel(log_level)
    return session
