"""The plug-in in a process that had Spark before, as in a notebook."""

import subprocess
import sys

from tests.support.documentation import BLOCKS

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
