"""Event time of a query is by split, what is late is counted, an idle source lets others go on."""

from collections import Counter
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

import tidelog.spark
from tests.spark.job import jobs
from tests.spark.support.place import Place
from tests.spark.support.session import PATIENCE_S
from tests.support.pipelines import run
from tidelog import Job, JsonLinesSource, Tumbling
from tidelog.storage.memory import MemoryStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FAR_MS = 20_000_000


def windows(source: Path, output: Path) -> Job:
    """Windows of files, with late records as another output, and windows of the windows."""
    job, out = Job("windows"), jobs.Outputs(output)
    timed = job.source(JsonLinesSource(source)).event_time(attrgetter("t"))
    counts = timed.key_by(attrgetter("k")).window(Tumbling("2s"), name="counts", late=jobs.LATE)
    counted = counts.count()
    out.end("counts", counted)
    out.end("late", counted.side_output(jobs.LATE))
    starts = counted.event_time(itemgetter(1), max_delay_ms=1_000_000, name="starts")
    sums = starts.key_by(itemgetter(0)).window(Tumbling("20s"), name="sums")
    out.end("sums", sums.sum(itemgetter(2)))
    return job


def started(job: Job, spark: "SparkSession", place: Place) -> tidelog.spark.JobQuery:
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    return tidelog.spark.run(
        job,
        checkpoint=str(place.checkpoint),
        spark=spark,
        available_now=True,
        sources=tidelog.spark.SourceOptions(files_per_batch=2),
    )


def ordered(records: jobs.Records) -> jobs.Records:
    """In the order of their times."""
    return sorted(records, key=itemgetter("t"))


def last(far_ms: int) -> jobs.Records:
    return [{"k": jobs.END, "t": jobs.START_MS + far_ms, "n": -1, "v": 0, "tag": jobs.END}]


def test_no_record_of_a_file_that_lags_is_late(spark: "SparkSession", place: Place) -> None:
    (fast,), (slow,) = jobs.batches(seed=1, parts=1), jobs.batches(seed=2, records=90, parts=1)
    for far_ms, records in ((FAR_MS, fast[:-1]), (FAR_MS, slow[:-1])):
        place.add("source", [*ordered(records), *last(far_ms)])
    for _ in range(2):
        place.add("source", last(2 * FAR_MS))
    source = place.source("source")
    query = started(windows(source, place.root / "spark"), spark, place)
    query.wait()
    run(windows(source, place.root / "embedded"), MemoryStore())
    for name in ("counts", "sums"):
        expected = Counter(jobs.lines_of(place.root / "embedded" / name))
        assert expected, name
        assert Counter(jobs.lines_of(place.root / "spark" / name)) == expected, name
    assert query.late_records == {}


def test_late_records_are_counted_and_go_to_their_output(
    spark: "SparkSession", place: Place
) -> None:
    (rows,) = jobs.batches(records=100, parts=1)
    for _ in range(2):
        place.add("source", last(FAR_MS))
    place.add("source", rows[:-1])
    query = started(windows(place.source("source"), place.root / "spark"), spark, place)
    query.wait()
    assert query.late_records == {"counts": 100}
    assert len(jobs.lines_of(place.root / "spark" / "late")) == 100


def test_windows_of_an_idle_query_fire_when_a_source_has_been_quiet(
    spark: "SparkSession", place: Place
) -> None:
    job, out = Job("quiet"), jobs.Outputs(place.root / "spark")
    for rows in jobs.batches(records=100, parts=1):
        place.add("left", rows)
        place.add("right", rows[:1])
    left, right = (
        job.source(JsonLinesSource(place.source(name)), name=name).event_time(
            attrgetter("t"), idle_after_ms="2s", name=f"time-{name}"
        )
        for name in ("left", "right")
    )
    both = left.union(right).key_by(attrgetter("k"))
    out.end("counts", both.window(Tumbling("2s"), name="counts").count())
    query = tidelog.spark.run(
        job, checkpoint=str(place.checkpoint), spark=spark, trigger="1 second"
    )
    try:
        # `right` holds event time at its only record, until it is idle.
        for _ in range(PATIENCE_S):
            if jobs.lines_of(place.root / "spark" / "counts"):
                break
            assert not query.wait(1)
        else:
            raise AssertionError("no window has fired")
    finally:
        query.stop()
    assert query.late_records == {}
