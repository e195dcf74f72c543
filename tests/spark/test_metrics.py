"""What the plug-in says of a query: a report of each batch, and metrics through Spark's sink."""

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pytest

from tests.spark.support.faults import SEGMENT, Faults
from tests.spark.support.place import Place
from tests.spark.support.running import add, finish
from tests.spark.support.session import PATIENCE_S
from tests.spark.support.zoo.aggregations import TOTALS
from tests.support.documentation import BLOCKS
from tests.support.spark_page import PREFIX, documented, parts, series
from tidelog.spark import BatchReport, batch_report, follow_batches

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.plugin_only

LISTENER = "tidelog.spark.TidelogBatchListener"


@contextmanager
def reports_of(spark: "SparkSession") -> Iterator[list[BatchReport]]:
    """All reports of the session's batches meanwhile."""
    found: list[BatchReport] = []
    listener = follow_batches(spark, found.append)
    try:
        yield found
    finally:
        spark.streams.removeListener(listener)


@contextmanager
def listening(spark: "SparkSession", file: Path) -> Iterator[None]:
    """Meanwhile the plug-in's listener logs the session's batches, at level INFO, to a file."""
    jvm: Any = spark._jvm
    log4j = jvm.org.apache.logging.log4j
    layout = log4j.core.layout.PatternLayout.newBuilder().withPattern("%m%n").build()
    builder = log4j.core.appender.FileAppender.newBuilder()
    appender = builder.withFileName(str(file)).setName(LISTENER).setLayout(layout).build()
    appender.start()
    logger = log4j.LogManager.getLogger(LISTENER)
    logger.addAppender(appender)
    logger.setLevel(log4j.Level.INFO)  # after the appender, which gives the logger another level
    listener = jvm.tidelog.spark.TidelogBatchListener()
    streams = spark._jsparkSession.streams()
    streams.addListener(listener)
    try:
        yield
    finally:
        streams.removeListener(listener)
        logger.removeAppender(appender)
        logger.setLevel(log4j.Level.ERROR)
        appender.stop()


def await_that(holds: Callable[[], object], what: Callable[[], str]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, what()
        time.sleep(0.1)


def index_of(place: Place, batch: int) -> str:
    return (place.checkpoint / "commits" / str(batch)).read_text().split("\n")[2]


def keep_commits(spark: "SparkSession") -> None:
    spark.conf.set("spark.sql.streaming.minBatchesToRetain", "100")


def test_every_batch_is_reported_as_its_commit_has_it_in_python_and_as_a_line_of_json(
    spark: "SparkSession", place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep_commits(spark)
    add(place, TOTALS.batches()[:6])
    log = tmp_path / "batches.log"
    given: dict[str, Any] = {"spark": spark}
    printed: list[str] = []

    def all_are_reported() -> bool:
        printed.extend(capsys.readouterr().out.splitlines())
        batches = len(place.committed())
        return {len(found), len(log.read_text().splitlines()), len(printed)} == {batches}

    with reports_of(spark) as found, listening(spark, log):
        exec(BLOCKS["spark-plugin 0"], given)
        finish(spark, TOTALS, place)
        await_that(all_are_reported, lambda: f"{found!r} {log.read_text()} {printed}")
        spark.streams.removeListener(given["listener"])
    assert [report.batch for report in found] == place.committed()
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert lines == [asdict(report) for report in found]
    assert [int(line.split()[0]) for line in printed] == place.committed()
    for report in found:
        line = index_of(place, report.batch)
        body = json.loads(line)["body"]
        assert report.checkpoint.endswith(str(place.checkpoint))
        assert report.segments == len(body["segments"]) > 0
        assert report.segment_bytes == sum(size for _, size in body["segments"])
        assert report.changelogs == len(body["changelogs"]) == 3
        assert report.changelog_bytes == sum(bytes_ for _, _, _, bytes_, _ in body["changelogs"])
        assert report.blocks == sum(len(pieces) for *_, pieces in body["changelogs"])
        assert report.index_bytes == len(line) + 1
        assert report.upload_attempts == report.segments
        assert set(report.snapshot_lags) == {"0/0", "0/1", "0/2"}
        assert all(1 <= lag <= report.batch + 1 for lag in report.snapshot_lags.values())
        assert report.upload_ms_p50 is not None and report.upload_ms_max is not None
        assert 0 < report.upload_ms_p50 <= report.upload_ms_max
        assert batch_report(spark, report.query, report.batch) == report
    # The period of snapshots is three batches, and each of three stores has its own phase.
    assert {report.snapshots for report in found[3:]} == {1}
    assert {report.snapshots_put_off for report in found} == {0, 2}
    assert batch_report(spark, found[0].query, len(found)) is None


def test_attempts_that_failed_are_reported(
    spark: "SparkSession", faulty: Faults, place: Place
) -> None:
    add(place, TOTALS.batches()[:2])
    faulty.add("fail", "put", SEGMENT, times=3)
    with reports_of(spark) as found:
        finish(spark, TOTALS, place, f"faulty://{place.checkpoint}")
        await_that(lambda: len(found) == place.committed()[-1] + 1, lambda: repr(found))
    attempts = sum(report.upload_attempts for report in found)
    assert attempts == sum(report.segments for report in found) + 3


def exposed(spark: "SparkSession") -> dict[str, float]:
    """What the sink for Prometheus shows of the plug-in, by the names of its series."""
    with urlopen(f"{spark.sparkContext.uiWebUrl}/metrics/prometheus") as page:
        text = page.read().decode()
    found = re.findall(rf"^({PREFIX}\w+){{[^}}]*}} (\S+)$", text, re.MULTILINE)
    return {name: float(value) for name, value in found}


def test_prometheus_gets_the_metrics_of_the_page_and_no_others(
    spark: "SparkSession", place: Place
) -> None:
    keep_commits(spark)
    add(place, TOTALS.batches()[:3])
    before = exposed(spark)
    finish(spark, TOTALS, place)
    batches = len(place.committed())

    def name_of(metric: str, part: str) -> str:
        return f"{PREFIX}{metric.replace('.', '_')}_{part}"

    def grown(metric: str, part: str) -> float:
        name = name_of(metric, part)
        return exposed(spark)[name] - before[name]

    # In local mode the driver's registry has the executor's metrics too.
    kinds = documented("executor")
    of_executor = {name_of(name, part) for name, kind in kinds.items() for part in parts()[kind]}
    rates = {name for name in before if name.endswith("Rate")}
    assert set(before) - rates == series() | of_executor
    assert grown("batches", "Count") == batches
    assert grown("barrier.time", "Count") == batches
    assert grown("committed.changelogs", "Count") == 3 * batches
    assert grown("parts", "Count") == 3 * batches
    assert grown("committed.segments", "Count") == grown("parts.segments", "Count") == batches
    assert grown("parts.upload.attempts", "Count") == grown("parts.upload.time", "Count") == batches
    assert grown("segments", "Count") == grown("parts.refused", "Count") == 0
    lines = sum(len(index_of(place, batch)) + 1 for batch in place.committed())
    assert grown("index.bytes", "Count") == lines
    # What the only executor says of itself reaches the driver within a few seconds.
    summed, counted = name_of("executors.changelogs", "Value"), name_of("changelogs", "Count")
    await_that(
        lambda: exposed(spark)[summed] == exposed(spark)[counted],
        lambda: f"{exposed(spark)[summed]} of {exposed(spark)[counted]}",
    )
