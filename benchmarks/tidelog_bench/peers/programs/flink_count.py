"""The word count on Flink SQL, started from Python: RocksDB with the changelog on.

Invariants: no record passes through Python: a Python function per record or batch would only add
to what Flink itself takes. The measured job and the one that checks it differ in the sink's
connector alone, so Flink gives their operators the same ids and the second restores what the first
has stored.
"""

import asyncio
import os
from pathlib import Path
from typing import Any, Final

from tidelog_bench.peers.feed import PIECE, Feed
from tidelog_bench.peers.flink import (
    PRINTED,
    RestJob,
    free_port,
    last_checkpoint,
    printed_counts,
    require_changelog,
    settings,
    table_environment,
)
from tidelog_bench.peers.following import measured
from tidelog_bench.peers.task import Task, check

BLACKHOLE: Final = "'connector' = 'blackhole'"
PRINT: Final = f"'connector' = 'print', 'print-identifier' = '{PRINTED}'"
_COUNT: Final = "INSERT INTO counts SELECT word, COUNT(*) AS n FROM words GROUP BY word"
PACKAGE = "apache-flink"


class FlinkJob(RestJob):
    """The word count over a directory of files, on a cluster inside the JVM of this process."""

    def __init__(
        self, source: Path, directory: Path, checkpoint_s: float, sink: str, restore: Path | None
    ) -> None:
        port = free_port()
        environment = table_environment(settings(directory, checkpoint_s, 1, port, restore))
        environment.execute_sql(
            "CREATE TABLE words (word STRING) WITH ('connector' = 'filesystem', 'format' = 'raw', "
            f"'path' = '{source.as_uri()}', 'source.monitor-interval' = '250 ms')"
        )
        environment.execute_sql(
            "CREATE TABLE counts (word STRING, n BIGINT, PRIMARY KEY (word) NOT ENFORCED) "
            f"WITH ({sink})"
        )
        self._client: Any = environment.execute_sql(_COUNT).get_job_client()
        super().__init__(port, str(self._client.get_job_id()))

    def cancel(self) -> None:
        """End the job; its last checkpoint stays."""
        self._client.cancel().result()


def run(task: Task) -> dict[str, float]:
    """Count; then let a second job restore the last checkpoint and say what it finds."""
    words = task.words()
    # The JVM is started later and inherits this: what the sink of the check prints is read back.
    printed = task.path / "printed"
    with printed.open("wb") as output:
        os.dup2(output.fileno(), 1)
    os.environ["FLINK_LOG_DIR"] = str(task.path)
    feed = Feed(task.path, words, min(PIECE, task.batch_words))
    feed.fill()
    job = FlinkJob(feed.input, task.path, task.checkpoint_s, BLACKHOLE, None)
    found = asyncio.run(measured(job, feed, task))
    require_changelog(task.durable)
    job.cancel()
    if task.restarts:
        position = feed.position
        # Each row that the check prints holds the restored count plus one.
        feed.again()
        restore = last_checkpoint(task.durable, job.id)
        checking = FlinkJob(feed.input, task.path, task.checkpoint_s, PRINT, restore)
        counts = asyncio.run(printed_counts(printed, len(words.fill), checking.position))
        checking.cancel()
        check("Flink", counts, words, position)
    return found
