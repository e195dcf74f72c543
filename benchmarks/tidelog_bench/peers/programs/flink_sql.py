"""The word count, a session window and an interval join in Flink SQL, started from Python: RocksDB
with the changelog on.

Invariants: no record passes through Python: a Python function per record or batch would only add
to what Flink itself takes. The word count that is measured and the one that checks it differ in the
sink's connector alone, so Flink gives their operators the same ids and the second restores what the
first has stored.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment

from tidelog.effects import hold_thread
from tidelog_bench.embedded.meter import Mark, tree_mark
from tidelog_bench.peers.feed import Feed
from tidelog_bench.peers.programs import flink_stream as flink
from tidelog_bench.peers.task import DELAY_MS, EventTask, Task, figures

_BLACKHOLE: Final = "'connector' = 'blackhole'"
_PRINT: Final = f"'connector' = 'print', 'print-identifier' = '{flink.PRINTED}'"
_COUNT: Final = "INSERT INTO counts SELECT word, COUNT(*) AS n FROM words GROUP BY word"
PACKAGE = "apache-flink"
_LOOK_S: Final = 0.01
_BEFORE: Final = ("CREATED", "SCHEDULED", "DEPLOYING", "INITIALIZING")
_TYPES: Final = {"key": "STRING"}
_SESSION: Final = """INSERT INTO results SELECT key,
  1000 * UNIX_TIMESTAMP(CAST(window_start AS STRING), 'yyyy-MM-dd HH:mm:ss.SSS')
    + EXTRACT(MILLISECOND FROM window_start),
  1000 * UNIX_TIMESTAMP(CAST(window_end AS STRING), 'yyyy-MM-dd HH:mm:ss.SSS')
    + EXTRACT(MILLISECOND FROM window_end), SUM(`value`)
  FROM TABLE(SESSION(TABLE `rows` PARTITION BY key, DESCRIPTOR(ts), INTERVAL '{s}' SECOND))
  GROUP BY key, window_start, window_end"""
_JOIN: Final = """INSERT INTO results SELECT l.key, l.`time`, l.`value`, r.`time`, r.`value`
  FROM `left` l, `right` r
  WHERE l.key = r.key AND r.ts BETWEEN l.ts AND l.ts + INTERVAL '{s}' SECOND"""


def run(task: Task) -> dict[str, float]:
    """Count on a cluster inside the JVM of this process; then check what it made durable."""
    # The JVM is started later and inherits this: what the sink of the check prints is read back.
    with flink.printed(task).open("wb") as output:
        os.dup2(output.fileno(), 1)
    os.environ["FLINK_LOG_DIR"] = str(task.path)

    @contextmanager
    def running(feed: Feed, restore: Path | None) -> Iterator[flink.RestJob]:
        port, sink = flink.free_port(), _BLACKHOLE if restore is None else _PRINT
        environment = _tables(flink.settings(task, 1, port, restore))
        environment.execute_sql(
            "CREATE TABLE words (word STRING) WITH ('connector' = 'filesystem', 'format' = 'raw', "
            f"'path' = '{feed.input.as_uri()}', 'source.monitor-interval' = '250 ms')"
        )
        environment.execute_sql(
            "CREATE TABLE counts (word STRING, n BIGINT, PRIMARY KEY (word) NOT ENFORCED) "
            f"WITH ({sink})"
        )
        client = environment.execute_sql(_COUNT).get_job_client()
        yield flink.RestJob(port, str(client.get_job_id()))
        # Its last checkpoint stays.
        client.cancel().result()

    return flink.count_words(task, running)


def run_events(task: EventTask) -> dict[str, float]:
    """Run the job on a cluster inside the JVM of this process, to the end of its files."""
    drawn = task.write()
    os.environ["FLINK_LOG_DIR"] = str(task.path)
    port = flink.free_port()
    chosen = flink.settings(task, 1, port) | {
        "table.local-time-zone": "UTC",
        # By default a job's status is up to 3 s old, and a short job is over by then.
        "web.refresh-interval": "10",
    }
    environment = _tables(chosen)
    for name in task.sides:
        environment.execute_sql(
            f"CREATE TABLE `{name}` (key STRING, `time` BIGINT, `value` BIGINT, "
            "ts AS TO_TIMESTAMP_LTZ(`time`, 3), "
            f"WATERMARK FOR ts AS ts - INTERVAL '{DELAY_MS / 1000}' SECOND) WITH "
            "('connector' = 'filesystem', 'format' = 'json', "
            f"'path' = '{task.side(name).parent.as_uri()}')"
        )
    columns = ", ".join(f"`{name}` {_TYPES.get(name, 'BIGINT')}" for name in task.fields)
    environment.execute_sql(
        f"CREATE TABLE results ({columns}) WITH ('connector' = 'filesystem', 'format' = 'json', "
        f"'path' = '{task.results.as_uri()}')"
    )
    query = (_SESSION if task.job == "session" else _JOIN).format(s=task.within_ms // 1000)
    result = environment.execute_sql(query)
    try:
        start = _begun(f"http://localhost:{port}/jobs/{result.get_job_client().get_job_id()}")
    except OSError:
        # The cluster goes with its job, whose failure says more.
        result.wait()
        raise
    result.wait()
    end = tree_mark(task.rows)
    return figures(task, drawn, start, end)


def _begun(job: str) -> Mark:
    """The moment when all tasks were first seen to run."""
    while True:
        status = flink.get(job)
        if status["vertices"] and all(v["status"] not in _BEFORE for v in status["vertices"]):
            return tree_mark(0)
        hold_thread(_LOOK_S)


def _tables(chosen: Mapping[str, str]) -> Any:
    configuration = Configuration()
    for key, value in chosen.items():
        configuration.set_string(key, value)
    streaming = EnvironmentSettings.new_instance().in_streaming_mode()
    return TableEnvironment.create(streaming.with_configuration(configuration).build())
