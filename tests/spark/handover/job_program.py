"""A job that moved to Spark, as a process of its own: see `Application`."""

import json
import sys
from pathlib import Path

from tests.spark.handover.jobs import windows_job
from tests.spark.support.session import build
from tidelog.spark.handover.begin import Origin
from tidelog.spark.handover.takeover import take_over
from tidelog.spark.job.run import run


def main() -> None:
    request = json.loads(sys.argv[1])
    spark = build(request["master"], request["settings"], log_level="WARN")
    source, output, query = (Path(request[name]) for name in ("input", "output", "query"))
    job = windows_job(source, output, follow=True)
    handover = take_over(job, Origin(request["savepoint"], str(query)))
    run(
        job,
        checkpoint=str(query),
        spark=spark,
        available_now=True,
        initial=handover.initial(spark),
        positions=handover.positions(),
        after=handover.predecessor,
    ).wait()
    spark.stop()


if __name__ == "__main__":
    main()
