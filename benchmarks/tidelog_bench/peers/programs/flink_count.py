"""The word count on Flink SQL, started from Python: RocksDB with the changelog on.

Invariant: no record passes through Python: a Python function per record or batch would only add
to what Flink itself takes.
"""

import asyncio
import os
from importlib.metadata import version
from pathlib import Path
from typing import Final

from tidelog.errors import TidelogError
from tidelog_bench.embedded.meter import CLOCK, Mark
from tidelog_bench.embedded.words import Words
from tidelog_bench.peers.counts import check
from tidelog_bench.peers.feed import Feed
from tidelog_bench.peers.programs.flink_job import BLACKHOLE, PRINT, PRINTED, FlinkJob
from tidelog_bench.peers.task import Outcome, Task
from tidelog_bench.peers.usage import figures, size_mb, tree_mark

_PIECE: Final = 262_144
"""Words in a file; listing many small ones, four times a second, would cost what counting does."""
_AHEAD_S: Final = 1.5
"""Files hold what the next looks of Flink into the directory, and of this process, may ask for."""
_LOOK_S: Final = 0.2
NOTES = {
    "durable": "every change in files of the changelog, not synced, and the source's files in "
    "checkpoints, whose metadata is, in a local directory; the table is uploaded there every 10 "
    "minutes, Flink's default",
    "not_done": "no network: a cluster of one slot inside one JVM; words are read from local "
    "files, which is in the figures; no Python in the way of a record",
}


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
