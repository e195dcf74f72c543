"""What the word counts on Flink share: settings, the REST interface, and the check of a restore.

Invariant: a job is asked through its cluster's REST interface alone, whatever started it.
"""

import asyncio
import json
import re
import socket
import urllib.request
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

from tidelog.errors import TidelogError
from tidelog_bench.embedded.meter import CLOCK, size_mb
from tidelog_bench.peers.feed import LOOK_S, PIECE, Feed, measured
from tidelog_bench.peers.task import ProgramTask, Task

PRINTED: Final = "count"
"""Begins each line that the sink of the check prints."""
_ROW: Final = re.compile(rf"{PRINTED}(?::\d+)?> (?:\+[UI]\[|\()([^,]+), ?(\d+)[\])]")
"""`count> +U[word, 12]` of SQL, not the row taken back; `count:2> (word,12)` of a stream."""
_RUNNING: Final = ("INITIALIZING", "CREATED", "RUNNING")


def settings(
    task: ProgramTask, parallelism: int, port: int, restore: Path | None = None
) -> dict[str, str]:
    """RocksDB with the changelog; checkpoints and changelog in local directories.

    Mini-batches are off, as Flink has them by default; single runs with uniform words did not
    favour them.
    """
    durable = task.durable
    chosen = {
        "io.tmp.dirs": str(task.path / "local"),
        "parallelism.default": str(parallelism),
        "restart-strategy.type": "none",
        "state.backend.type": "rocksdb",
        "state.changelog.enabled": "true",
        "state.changelog.storage": "filesystem",
        "dstl.dfs.base-path": (durable / "changelog").as_uri(),
        "execution.checkpointing.dir": (durable / "checkpoints").as_uri(),
        "execution.checkpointing.incremental": "true",
        "execution.checkpointing.interval": f"{round(task.checkpoint_s * 1000)} ms",
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        "taskmanager.memory.managed.size": "512m",
        "metrics.fetcher.update-interval": "100",
        "rest.address": "localhost",
        "rest.port": str(port),
        "rest.bind-port": str(port),
    }
    if restore is not None:
        chosen["execution.state-recovery.path"] = restore.as_uri()
        # With the changelog on, Flink restores in no other mode.
        chosen["execution.state-recovery.claim-mode"] = "CLAIM"
    return chosen


def free_port() -> int:
    """A port of this machine that nobody listens on now."""
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        return int(listener.getsockname()[1])


class RestJob:
    """A job of a cluster on this machine, asked through REST."""

    ahead_s = 1.5
    """For the next looks of Flink into the directory, and of the process that measures."""
    least_pieces = 1

    until_durable = 2
    """One may have begun before the last words; the one after it has them all."""

    def __init__(self, port: int, job: str) -> None:
        self.id = job
        self._url = f"http://localhost:{port}/jobs/{job}"

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

    async def newest_position(self) -> int:
        """The same: Flink's metrics are 0.1 s old at most."""
        return self.position()

    def checkpoints(self) -> int:
        return int(self._get("/checkpoints")["counts"]["completed"])

    def _get(self, what: str) -> Any:
        return get(self._url + what)


def get(url: str) -> Any:
    """What a cluster answers; raises URLError."""
    with urllib.request.urlopen(url, timeout=30) as answer:
        return json.loads(answer.read())


Running = Callable[[Feed, Path | None], AbstractContextManager[RestJob]]
"""A job over the files of a feed, restored from a checkpoint; then its counts are printed."""


def count_words(task: Task, running: Running) -> dict[str, float]:
    """Count; then let a second job restore the last checkpoint and say what it finds."""
    words = task.words()
    feed = Feed(task.path, words, min(PIECE, task.batch_words))
    feed.fill()
    with running(feed, None) as job:
        found = asyncio.run(measured(job, feed, task))
        if not size_mb(task.durable / "changelog"):
            raise TidelogError(
                "Flink's changelog",
                expected="files of changes",
                found="none",
                action="is the installed version of Flink supported?",
            )
    if task.restarts:
        position = feed.position
        # Each row that the check prints holds the restored count plus one.
        feed.again()
        with running(feed, _last_checkpoint(task.durable, job.id)) as checking:
            printing = _printed_counts(printed(task), len(words.fill), checking.position)
            counts = asyncio.run(printing)
        task.check(counts, words, position)
    return found


def printed(task: Task) -> Path:
    """Where what a job prints goes."""
    return task.path / "printed"


def _last_checkpoint(durable: Path, job: str) -> Path:
    """The newest complete checkpoint of a job that has ended."""
    found = (durable / "checkpoints" / job).glob("chk-*/_metadata")
    return max((path.parent for path in found), key=lambda path: int(path.name[4:]))


async def _printed_counts(output: Path, words: int, alive: Callable[[], object]) -> dict[str, int]:
    """The restored count of every word, from a job that was given each of them once more."""
    counts: dict[str, int] = {}
    with output.open() as lines:
        partial = ""
        while len(counts) < words:
            alive()
            partial += lines.read()
            whole, _, partial = partial.rpartition("\n")
            for word, count in filter(None, map(_row, whole.splitlines())):
                counts[word] = count - 1
            await CLOCK.sleep(LOOK_S)
    return counts


def _row(line: str) -> tuple[str, int] | None:
    found = _ROW.fullmatch(line)
    return None if found is None else (found[1], int(found[2]))
