"""The word count on Flink's DataStream API, in Java and on two slots: RocksDB with the changelog.

Invariants: the JVM holds the whole cluster and is killed, never stopped, so the second one has
nothing but what is on disk; both run the same operators with the same ids.
"""

import asyncio
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from urllib.error import URLError

from tidelog_bench.embedded.meter import CLOCK
from tidelog_bench.peers.feed import PIECE, Feed
from tidelog_bench.peers.flink import (
    PRINTED,
    RestJob,
    free_port,
    get,
    last_checkpoint,
    printed_counts,
    require_changelog,
    settings,
)
from tidelog_bench.peers.following import LOOK_S, measured
from tidelog_bench.peers.systems import java_tool
from tidelog_bench.peers.task import Task, check

_PARALLELISM: Final = 2
_SOURCE: Final = Path(__file__).parent / "FlinkWordCount.java"
PACKAGE = "apache-flink"


def run(task: Task) -> dict[str, float]:
    """Count; then let a second JVM restore the last checkpoint and say what it finds."""
    words = task.words()
    feed = Feed(task.path, words, min(PIECE, task.batch_words))
    feed.fill()
    jars = _compiled(task)
    with _running(task, feed, jars, None) as (port, process):
        job = asyncio.run(_job(port, process))
        found = asyncio.run(measured(job, feed, task))
        require_changelog(task.durable)
    if task.restarts:
        position = feed.position
        # Each row that the check prints holds the restored count plus one.
        feed.again()
        restore = last_checkpoint(task.durable, job.id)
        with _running(task, feed, jars, restore) as (port, process):
            checking = asyncio.run(_job(port, process))
            printed = _output(task)
            counts = asyncio.run(printed_counts(printed, len(words.fill), checking.position))
        check("Flink", counts, words, position)
    return found


@contextmanager
def _running(
    task: Task, feed: Feed, jars: str, restore: Path | None
) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """A JVM with the job, and the port of its cluster; killed at the end."""
    port = free_port()
    chosen = task.path / "flink.properties"
    lines = settings(task.path, task.checkpoint_s, _PARALLELISM, port, restore)
    lines["pipeline.object-reuse"] = "true"
    chosen.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    command = [java_tool("java") or "java", "-cp", jars, _SOURCE.stem, str(chosen)]
    command += [str(feed.input), *([] if restore is None else [PRINTED])]
    with _output(task).open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        yield port, process
    except Exception as error:
        error.add_note(_output(task).read_text(errors="replace")[-2000:])
        raise
    finally:
        process.kill()
        process.wait()


async def _job(port: int, process: subprocess.Popen[bytes]) -> RestJob:
    """The job of a cluster, once it is there; raises RuntimeError when the JVM ends before."""
    while process.poll() is None:
        try:
            jobs = get(f"http://localhost:{port}/jobs")["jobs"]
        except URLError:
            jobs = []
        if jobs:
            return RestJob(port, jobs[0]["id"])
        await CLOCK.sleep(LOOK_S)
    raise RuntimeError(f"the JVM ended with {process.returncode}")


def _compiled(task: Task) -> str:
    """The class path of the program, which is compiled against the jars of PyFlink."""
    spec = find_spec("pyflink")
    assert spec is not None and spec.submodule_search_locations
    jars, classes = f"{spec.submodule_search_locations[0]}/lib/*", task.path / "classes"
    command = [java_tool("javac") or "javac", "--release", "17", "-cp", jars]
    subprocess.run([*command, "-d", str(classes), str(_SOURCE)], check=True)
    return f"{classes}:{jars}"


def _output(task: Task) -> Path:
    return task.path / "printed"
