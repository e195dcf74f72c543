"""The plug-in in a process that had Spark before, as in a notebook."""

import subprocess
import sys

PROGRAM = """
from pyspark.sql import SparkSession
import tidelog.spark

master = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
master.getOrCreate().stop()
first = tidelog.spark.configure(master).getOrCreate()
print("first:", first.sparkContext.getConf().get("spark.plugins"), first.range(3).count())
jvm = first.sparkContext._gateway
first.stop()
second = tidelog.spark.configure(master).getOrCreate()
print("second:", second.range(4).count(), second.sparkContext._gateway is jvm)
second.stop()
"""


def test_a_session_with_the_plug_in_follows_one_without(spark_or_skip: None) -> None:
    command = [sys.executable, "-c", PROGRAM]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout == "first: tidelog.spark.TidelogPlugin 3\nsecond: 4 True\n"
