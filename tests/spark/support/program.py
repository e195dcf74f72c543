"""The program that `Application` runs: queries of the zoo, started again when they fail.

Ends with 0 once all input is read, with 1 when a query has failed for good. Needs pyspark and
pandas only, so that it runs on any supported Spark.
"""

import json
import sys
import traceback
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from tests.spark.support.place import Place
from tests.spark.support.running import start
from tests.spark.support.session import build
from tests.spark.support.zoo.all import QUERIES
from tests.spark.support.zoo.query import Topics


def run(spark: SparkSession, job: dict[str, Any], restarts: int) -> bool:
    """Whether the query has read all its input."""
    query, place = QUERIES[job["query"]], Place(Path(job["root"]))
    for attempt in range(restarts + 1):
        try:
            start(
                spark.newSession(),
                query,
                place,
                follow=job["follow"],
                checkpoint=job["checkpoint"],
                topics=job["topics"] and Topics(**job["topics"]),
            ).awaitTermination()
            return True
        except StreamingQueryException:
            print(f"attempt {attempt} has failed:", traceback.format_exc(), flush=True)
    return False


def main() -> int:
    request = json.loads(sys.argv[1])
    spark = build(request["master"], request["settings"], log_level="WARN")
    try:
        return 0 if all(run(spark, job, request["restarts"]) for job in request["jobs"]) else 1
    finally:
        spark.stop()


if __name__ == "__main__":
    sys.exit(main())
