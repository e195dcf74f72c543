"""The plug-in in a process that has Spark already, as in a notebook or under spark-submit."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

from tests.spark.support.session import ROOT
from tests.support.documentation import BLOCKS
from tidelog.spark import plugin_jar
from tidelog.spark.plugin.toolchain import find_spark

PROGRAM = f"""
from pyspark.sql import SparkSession

plain = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
plain.getOrCreate().stop()
{BLOCKS["spark 0"]}
plugins = spark.sparkContext.getConf().get("spark.plugins")
print("as printed:", plugins, spark.range(3).count())
jvm = spark.sparkContext._gateway
spark.stop()
again = configure(plain).getOrCreate()
print("again:", again.range(4).count(), again.sparkContext._gateway is jvm)
again.stop()
"""


def test_sessions_with_the_plug_in_as_the_docs_print_them_follow_one_without(
    spark_or_skip: None,
) -> None:
    command = [sys.executable, "-c", PROGRAM]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout == "as printed: tidelog.spark.TidelogPlugin 3\nagain: 4 True\n"


SUBMITTED = """
from pyspark.sql import SparkSession
from tidelog.spark import configure

spark = configure(SparkSession.builder).getOrCreate()
jars = spark.sparkContext._jsc.sc().listJars().mkString(" ")
print("jars:", *(name for name in ("other.jar", "tidelog-spark-") if name in jars))
"""


def submitted(directory: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """The run of a program that calls `configure`, under spark-submit."""
    program = directory / "program.py"
    program.write_text(SUBMITTED)
    settings = ["--master", "local[1]", "--conf", "spark.ui.enabled=false"]
    command = [str(find_spark().home / "bin/spark-submit"), *settings, *arguments, str(program)]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_under_spark_submit_its_jars_stay_and_one_without_the_plug_in_is_refused(
    spark_or_skip: None, tmp_path: Path
) -> None:
    with zipfile.ZipFile(other := tmp_path / "other.jar", "w") as archive:
        archive.writestr("other.txt", "")
    run = submitted(tmp_path, "--jars", f"{other},{plugin_jar()}")
    assert "jars: other.jar tidelog-spark-" in run.stdout, run.stderr
    run = submitted(tmp_path, "--jars", str(other))
    assert "the driver that spark-submit started; expected tidelog.spark" in run.stdout
