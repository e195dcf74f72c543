"""What the plug-in says of every batch that a query has committed.

Spark's own progress of a query shows what its state store supplies, which ends before the batch is
durable; the plug-in knows the rest when the batch is committed, and this module hands it out.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from tidelog.errors import ConfigError
from tidelog.spark.plugin.settings import PLUGIN_CLASS, PLUGINS, has_plugin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryListener


@dataclass(frozen=True, slots=True)
class BatchReport:
    """What one committed batch of a query was made of; sizes in bytes."""

    query: str
    """Spark's id of the query."""
    checkpoint: str
    batch: int
    changelogs: int
    changelog_bytes: int
    segments: int
    """Objects that hold the batch's changelogs."""
    segment_bytes: int
    commit_bytes: int
    """Length of the segment within the batch's commit."""
    blocks: int
    """Pieces of changelogs in them."""
    index_bytes: int
    """Length of the index line in the batch's commit."""
    barrier_wait_ms: int
    """How long the commit waited for its changelogs to be durable."""
    upload_ms_p50: float | None
    """Of the batch's segments, retries included; None for a batch that wrote none."""
    upload_ms_max: float | None
    upload_attempts: int
    """Requests that stored them."""
    snapshots: int
    """State stores that took a snapshot with this batch."""
    snapshots_put_off: int
    """State stores whose snapshot Spark alone would have taken with this batch; it comes later."""
    snapshot_lags: dict[str, int]
    """Versions since its newest uploaded snapshot, of the five state stores that have the most; a
    store is named by its directory below `state`, operator/partition."""
    roll_ups: int
    """Roll-ups written since the query's batch before, as the three that follow."""
    segments_deleted: int
    house_keeping_failures: int
    """Removals and roll-ups that failed; they are tried again."""
    live_segments: int
    """Segments that the checkpoint has, when the batch before had been cleaned up after."""
    live_bytes: int


def batch_report(spark: "SparkSession", query: str, batch: int) -> BatchReport | None:
    """The report of a batch of a query, given by Spark's id of the query; None if this application
    has not committed it with the plug-in, or more than a thousand batches ago.

    Raises ConfigError when the session runs without the plug-in or is one of Spark Connect.
    """
    line = _driver(spark).report(str(query), batch)
    return None if line is None else msgspec.json.decode(line, type=BatchReport)


def follow_batches(
    spark: "SparkSession", callback: Callable[[BatchReport], None]
) -> "StreamingQueryListener":
    """Call `callback` with the report of every batch that the session's queries commit from now on.

    The calls come one after another in a thread of Spark's listeners, soon after the commit; no
    batch waits for them. The listener is returned for `spark.streams.removeListener`. Raises
    ConfigError as `batch_report`.
    """
    from pyspark.sql.streaming.listener import StreamingQueryListener  # noqa: PLC0415  (lazy)

    _driver(spark)
    reported: dict[str, int] = {}

    class Follower(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:
            pass

        def onQueryProgress(self, event: Any) -> None:
            run, batch = str(event.progress.runId), event.progress.batchId
            if reported.get(run) == batch:
                return  # a query that waits for input tells of its last batch again
            report = batch_report(spark, str(event.progress.id), batch)
            if report is not None:
                reported[run] = batch
                callback(report)

        def onQueryTerminated(self, event: Any) -> None:
            reported.pop(str(event.runId), None)

    follower = Follower()
    spark.streams.addListener(follower)
    return follower


def _driver(spark: "SparkSession") -> Any:
    """The plug-in in the session's driver, as far as Python reaches it."""
    jvm = getattr(spark, "_jvm", None)
    if jvm is None:
        raise ConfigError(
            "session for reports of batches",
            expected="one that runs Spark's driver on this machine",
            found="a client of Spark Connect",
            action="set spark.sql.streaming.streamingQueryListeners to "
            "tidelog.spark.TidelogBatchListener at the server, which logs the same",
        )
    plugins = spark.sparkContext.getConf().get(PLUGINS, "")
    if not has_plugin(str(plugins)):
        raise ConfigError(
            "session for reports of batches",
            expected=f"{PLUGIN_CLASS} in {PLUGINS}",
            found=plugins or "no plug-in",
            action="make the session with tidelog.spark.configure",
        )
    return jvm.tidelog.spark.TidelogBatchListener
