"""A job that moved to Spark, as a process of its own: see `Application`."""

import json
import sys
from pathlib import Path

import tidelog.spark
from tests.spark.handover.jobs import windows_job
from tests.spark.support.session import build


def main() -> None:
    request = json.loads(sys.argv[1])
    spark = build(request["master"], request["settings"], log_level="WARN")
    job = windows_job(Path(request["input"]), Path(request["output"]), follow=True)
    query = tidelog.spark.run(
        job,
        checkpoint=request["query"],
        spark=spark,
        available_now=True,
        savepoint=request["savepoint"],
    )
    query.wait()
    spark.stop()


if __name__ == "__main__":
    main()
