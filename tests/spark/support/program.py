"""The program that `Application` runs: queries of the zoo, one after the other.

Ends with 0 once all input is read, with 1 when a query has failed. Needs pyspark and pandas only,
so that it runs on any supported Spark.
"""

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.spark.support.place import Place
from tests.spark.support.running import start
from tests.spark.support.session import build
from tests.spark.support.zoo.all import QUERIES
from tests.spark.support.zoo.query import Topics


def run(spark: SparkSession, job: dict[str, Any]) -> None:
    """Let a query read all its input; raises what ends it."""
    start(
        spark.newSession(),
        QUERIES[job["query"]],
        Place(Path(job["root"])),
        follow=job["follow"],
        checkpoint=job["checkpoint"],
        topics=job["topics"] and Topics(**job["topics"]),
    ).awaitTermination()


def main() -> None:
    request = json.loads(sys.argv[1])
    spark = build(request["master"], request["settings"], log_level="WARN")
    try:
        for job in request["jobs"]:
            run(spark, job)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
