"""The word count on Flink SQL, started from Python: RocksDB with the changelog on.

Invariants: no record passes through Python: a Python function per record or batch would only add
to what Flink itself takes. The measured job and the one that checks it differ in the sink's
connector alone, so Flink gives their operators the same ids and the second restores what the first
has stored.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tidelog_bench.peers.feed import Feed
from tidelog_bench.peers.flink import (
    PRINTED,
    RestJob,
    count_words,
    free_port,
    printed,
    settings,
    table_environment,
)
from tidelog_bench.peers.task import Task

_BLACKHOLE: Final = "'connector' = 'blackhole'"
_PRINT: Final = f"'connector' = 'print', 'print-identifier' = '{PRINTED}'"
_COUNT: Final = "INSERT INTO counts SELECT word, COUNT(*) AS n FROM words GROUP BY word"
PACKAGE = "apache-flink"


def run(task: Task) -> dict[str, float]:
    """Count on a cluster inside the JVM of this process; then check what it made durable."""
    # The JVM is started later and inherits this: what the sink of the check prints is read back.
    with printed(task).open("wb") as output:
        os.dup2(output.fileno(), 1)
    os.environ["FLINK_LOG_DIR"] = str(task.path)

    @contextmanager
    def running(feed: Feed, restore: Path | None) -> Iterator[RestJob]:
        port, sink = free_port(), _BLACKHOLE if restore is None else _PRINT
        environment = table_environment(settings(task.path, task.checkpoint_s, 1, port, restore))
        environment.execute_sql(
            "CREATE TABLE words (word STRING) WITH ('connector' = 'filesystem', 'format' = 'raw', "
            f"'path' = '{feed.input.as_uri()}', 'source.monitor-interval' = '250 ms')"
        )
        environment.execute_sql(
            "CREATE TABLE counts (word STRING, n BIGINT, PRIMARY KEY (word) NOT ENFORCED) "
            f"WITH ({sink})"
        )
        client = environment.execute_sql(_COUNT).get_job_client()
        yield RestJob(port, str(client.get_job_id()))
        # Its last checkpoint stays.
        client.cancel().result()

    return count_words(task, running)
