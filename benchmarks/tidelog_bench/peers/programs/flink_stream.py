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
from tidelog_bench.peers.feed import LOOK_S, Feed
from tidelog_bench.peers.flink import (
    PRINTED,
    RestJob,
    count_words,
    free_port,
    get,
    printed,
    settings,
)
from tidelog_bench.peers.systems import java_tool
from tidelog_bench.peers.task import Task

_PARALLELISM: Final = 2
_SOURCE: Final = Path(__file__).parent / "FlinkWordCount.java"
PACKAGE = "apache-flink"


def run(task: Task) -> dict[str, float]:
    """Count; then let a second JVM restore the last checkpoint and say what it finds."""
    jars = _compiled(task)
    return count_words(task, lambda feed, restore: _running(task, feed, jars, restore))


@contextmanager
def _running(task: Task, feed: Feed, jars: str, restore: Path | None) -> Iterator[RestJob]:
    """A JVM with the job; killed at the end."""
    port = free_port()
    chosen = task.path / "flink.properties"
    lines = settings(task, _PARALLELISM, port, restore)
    lines["pipeline.object-reuse"] = "true"
    chosen.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    command = [java_tool("java") or "java", "-cp", jars, _SOURCE.stem, str(chosen)]
    command += [str(feed.input), *([] if restore is None else [PRINTED])]
    with printed(task).open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        yield asyncio.run(_job(port, process))
    except Exception as error:
        error.add_note(printed(task).read_text(errors="replace")[-2000:])
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
