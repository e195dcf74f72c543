"""The word count on Flink SQL, started from Python: RocksDB with the changelog on.

Invariants: no record passes through Python: a Python function per record or batch would only add
to what Flink itself takes. The measured job and the one that checks it differ in the sink's
connector alone, so Flink gives their operators the same ids and the second restores what the first
has stored.
"""

import asyncio
import json
import os
import socket
import urllib.request
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment

from tidelog.errors import TidelogError
from tidelog_bench.embedded.meter import CLOCK, Mark
from tidelog_bench.embedded.words import Words
from tidelog_bench.peers.feed import Feed
from tidelog_bench.peers.task import Outcome, Task, check
from tidelog_bench.peers.usage import figures, size_mb, tree_mark

_PIECE: Final = 262_144
"""Words in a file; listing many small ones, four times a second, would cost what counting does."""
_AHEAD_S: Final = 1.5
"""Files hold what the next looks of Flink into the directory, and of this process, may ask for."""
_LOOK_S: Final = 0.2
BLACKHOLE: Final = "'connector' = 'blackhole'"
PRINTED: Final = "count"
"""Begins each line that the sink of the check prints."""
PRINT: Final = f"'connector' = 'print', 'print-identifier' = '{PRINTED}'"
_COUNT: Final = "INSERT INTO counts SELECT word, COUNT(*) AS n FROM words GROUP BY word"
_RUNNING: Final = ("INITIALIZING", "CREATED", "RUNNING")
NOTES = {
    "durable": "every change in files of the changelog, not synced, and the source's files in "
    "checkpoints, whose metadata is, in a local directory; the table is uploaded there every 10 "
    "minutes, Flink's default",
    "not_done": "no network: a cluster of one slot inside one JVM; words are read from local "
    "files, which is in the figures; no Python in the way of a record",
}


def settings(directory: Path, checkpoint_s: float, port: int) -> dict[str, str]:
    """One slot; RocksDB with the changelog; checkpoints and changelog in local directories.

    Mini-batches are off, as Flink has them by default; single runs with uniform words did not
    favour them.
    """
    durable = directory / "durable"
    return {
        "io.tmp.dirs": str(directory / "local"),
        "parallelism.default": "1",
        "restart-strategy.type": "none",
        "state.backend.type": "rocksdb",
        "state.changelog.enabled": "true",
        "state.changelog.storage": "filesystem",
        "dstl.dfs.base-path": (durable / "changelog").as_uri(),
        "execution.checkpointing.dir": (durable / "checkpoints").as_uri(),
        "execution.checkpointing.incremental": "true",
        "execution.checkpointing.interval": f"{round(checkpoint_s * 1000)} ms",
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        "taskmanager.memory.managed.size": "512m",
        "metrics.fetcher.update-interval": "100",
        "rest.address": "localhost",
        "rest.port": str(port),
        "rest.bind-port": str(port),
    }


def free_port() -> int:
    """A port of this machine that nobody listens on now."""
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        return int(listener.getsockname()[1])


class FlinkJob:
    """The word count over a directory of files, on a cluster inside the JVM of this process."""

    def __init__(
        self, source: Path, directory: Path, checkpoint_s: float, sink: str, restore: Path | None
    ) -> None:
        port = free_port()
        self._rest = f"http://localhost:{port}"
        configuration = Configuration()
        chosen = settings(directory, checkpoint_s, port)
        if restore is not None:
            chosen["execution.state-recovery.path"] = restore.as_uri()
            # With the changelog on, Flink restores in no other mode.
            chosen["execution.state-recovery.claim-mode"] = "CLAIM"
        for key, value in chosen.items():
            configuration.set_string(key, value)
        environment = TableEnvironment.create(
            EnvironmentSettings.new_instance()
            .in_streaming_mode()
            .with_configuration(configuration)
            .build()
        )
        environment.execute_sql(
            "CREATE TABLE words (word STRING) WITH ('connector' = 'filesystem', 'format' = 'raw', "
            f"'path' = '{source.as_uri()}', 'source.monitor-interval' = '250 ms')"
        )
        environment.execute_sql(
            "CREATE TABLE counts (word STRING, n BIGINT, PRIMARY KEY (word) NOT ENFORCED) "
            f"WITH ({sink})"
        )
        self._client: Any = environment.execute_sql(_COUNT).get_job_client()
        self.id = str(self._client.get_job_id())

    def position(self) -> int:
        """Words that the source has read; raises RuntimeError when the job runs no more."""
        status = self._get("")
        if status["state"] not in _RUNNING:
            reason = self._get("/exceptions")["exceptionHistory"]["entries"]
            raise RuntimeError(f"the job is {status['state']}: {json.dumps(reason)[:2000]}")
        for vertex in status["vertices"]:
            if vertex["name"].startswith("Source"):
                return int(vertex["metrics"]["read-records"])
        return 0

    def checkpoints(self) -> int:
        """How many have completed."""
        return int(self._get("/checkpoints")["counts"]["completed"])

    def cancel(self) -> None:
        """End the job; its last checkpoint stays."""
        self._client.cancel().result()

    def _get(self, what: str) -> Any:
        with urllib.request.urlopen(f"{self._rest}/jobs/{self.id}{what}", timeout=30) as answer:
            return json.loads(answer.read())


def run(task: Task) -> Outcome:
    """Count; then let a second job restore the last checkpoint and say what it finds."""
    words = task.words()
    # The JVM is started later and inherits this: what the sink of the check prints is read back.
    printed = task.path / "printed"
    with printed.open("wb") as output:
        os.dup2(output.fileno(), 1)
    os.environ["FLINK_LOG_DIR"] = str(task.path)
    piece_words = min(_PIECE, task.batch_words)
    feed = Feed(task.path, words, piece_words)
    feed.fill()
    job = FlinkJob(feed.input, task.path, task.checkpoint_s, BLACKHOLE, None)
    start, end, commits = asyncio.run(_measured(job, feed, task))
    found = figures(start, end, commits, task.durable)
    if not size_mb(task.durable / "changelog"):
        raise TidelogError(
            "Flink's changelog",
            expected="files of changes",
            found="none",
            action="is the installed version of Flink supported?",
        )
    job.cancel()
    position = feed.position
    counts = asyncio.run(_restored(_last_checkpoint(task.durable, job), feed, words, task, printed))
    check("Flink", counts, words, position)
    return Outcome(found, {"versions": {"flink": version("apache-flink")}, **NOTES})


async def _measured(job: FlinkJob, feed: Feed, task: Task) -> tuple[Mark, Mark, int]:
    """The two moments, and the checkpoints completed between them."""
    while job.position() < feed.position:
        await CLOCK.sleep(_LOOK_S)
    await feed.keep_busy(job.position, task.warm_s, _AHEAD_S)
    start, before = tree_mark(job.position()), job.checkpoints()
    await feed.keep_busy(job.position, task.seconds, _AHEAD_S)
    end, after = tree_mark(job.position()), job.checkpoints()
    while job.position() < feed.position:
        await CLOCK.sleep(_LOOK_S)
    # One may have begun before the last words; the one after it has them all.
    complete = job.checkpoints() + 2
    while job.checkpoints() < complete:
        await CLOCK.sleep(_LOOK_S)
        job.position()
    return start, end, after - before


def _last_checkpoint(durable: Path, job: FlinkJob) -> Path:
    found = (durable / "checkpoints" / job.id).glob("chk-*/_metadata")
    return max((path.parent for path in found), key=lambda path: int(path.name[4:]))


async def _restored(
    checkpoint: Path, feed: Feed, words: Words, task: Task, printed: Path
) -> dict[str, int]:
    """Count every word once more: each row printed holds the restored count plus one."""
    feed.again()
    job = FlinkJob(feed.input, task.path, task.checkpoint_s, PRINT, checkpoint)
    counts: dict[str, int] = {}
    with printed.open() as lines:
        partial = ""
        while len(counts) < len(words.fill):
            job.position()
            partial += lines.read()
            whole, _, partial = partial.rpartition("\n")
            for line in whole.splitlines():
                row = _row(line)
                if row is not None:
                    counts[row[0]] = row[1] - 1
            await CLOCK.sleep(_LOOK_S)
    job.cancel()
    return counts


def _row(line: str) -> tuple[str, int] | None:
    """Word and count of `count> +U[word, 12]`; None for retracted rows and other lines."""
    if not line.startswith((f"{PRINTED}> +U[", f"{PRINTED}> +I[")):
        return None
    word, _, count = line.partition("[")[2].rstrip("]").partition(", ")
    return word, int(count)
