"""Flink's DataStream API, in Java: RocksDB with the changelog. The word count on two slots, and a
steady load on one; and what the first shares with the one in SQL: settings, the REST interface, and
the check of a restore.

Invariants: a job is asked through its cluster's REST interface alone, whatever started it. The JVM
holds the whole cluster and is killed, never stopped, so the second one has nothing but what is on
disk; both run the same operators with the same ids.
"""

import asyncio
import json
import re
import socket
import subprocess
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final
from urllib.error import URLError

from tidelog.errors import TidelogError
from tidelog_bench.embedded.lateness import Handled
from tidelog_bench.embedded.meter import CLOCK, size_mb, tree_peak_mb
from tidelog_bench.peers.feed import LOOK_S, PIECE, Feed, measured
from tidelog_bench.peers.phases import Phase, SteadyTask, two_phases
from tidelog_bench.peers.systems import java_tool
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
        status = get(self._url)
        if status["state"] not in _RUNNING:
            reason = get(f"{self._url}/exceptions")["exceptionHistory"]["entries"]
            raise RuntimeError(f"the job is {status['state']}: {json.dumps(reason)[:2000]}")
        for vertex in status["vertices"]:
            if vertex["name"].startswith("Source"):
                return int(vertex["metrics"]["read-records"])
        return 0

    async def newest_position(self) -> int:
        """The same: Flink's metrics are 0.1 s old at most."""
        return self.position()

    def checkpoints(self) -> int:
        return int(get(f"{self._url}/checkpoints")["counts"]["completed"])

    def durations_s(self, newest_s: float) -> list[float]:
        """From end to end, of the checkpoints that began in so many seconds before the newest."""
        history = get(f"{self._url}/checkpoints")["history"]
        whole = [each for each in history if each["status"] == "COMPLETED"]
        begin_ms = max((each["trigger_timestamp"] for each in whole), default=0) - newest_s * 1e3
        counted = [each for each in whole if each["trigger_timestamp"] >= begin_ms]
        return [each["end_to_end_duration"] / 1e3 for each in counted]


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


def printed(task: ProgramTask) -> Path:
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
            for row in filter(None, map(_ROW.fullmatch, whole.splitlines())):
                counts[row[1]] = int(row[2]) - 1
            await CLOCK.sleep(LOOK_S)
    return counts


_PARALLELISM: Final = 2
_COUNT: Final = Path(__file__).parent / "FlinkWordCount.java"
_LATEST: Final = Path(__file__).parent / "FlinkLatest.java"
PACKAGE = "apache-flink"


def run(task: Task) -> dict[str, float]:
    """Count; then let a second JVM restore the last checkpoint and say what it finds."""

    def running(feed: Feed, restore: Path | None) -> AbstractContextManager[RestJob]:
        chosen = settings(task, _PARALLELISM, free_port(), restore)
        return _jvm(task, _COUNT, chosen, feed.input, *([] if restore is None else [PRINTED]))

    return count_words(task, running)


def run_steady(task: SteadyTask) -> dict[str, float]:
    """Both phases, in a JVM of its own each, which has the whole budget as managed memory."""

    def phase(rate: float | None, seconds: float) -> Phase:
        notes = task.path / f"notes-{rate}"
        chosen = settings(task, 1, free_port()) | {
            "taskmanager.memory.managed.size": f"{task.memory_mib}m",
            "state.changelog.periodic-materialize.interval": f"{task.materialize_s * 1e3:.0f} ms",
            "web.checkpoints.history": "100000",
            # A machine that stands still for a while is a stop to be measured, not a lost cluster.
            "heartbeat.timeout": "3600000",
        }
        load = (notes, task.keys, task.seed, rate or 0.0, task.warm_s + seconds)
        with _jvm(task, _LATEST, chosen, *load) as job:
            asyncio.run(_written(notes, job))
            durations_s, peak_mb = job.durations_s(seconds), tree_peak_mb()
        return Phase(list(_handled(notes)), task.keys, durations_s, peak_mb)

    return two_phases(task, phase)


async def _written(notes: Path, job: RestJob) -> None:
    """Return when the file is there; raises RuntimeError when the job runs no more."""
    while not notes.exists():
        job.position()
        await CLOCK.sleep(LOOK_S)


def _handled(notes: Path) -> Iterator[Handled]:
    """Of lines with nanoseconds, on the clock of this process, and a number."""
    with notes.open() as lines:
        for moment, number in map(str.split, lines):
            yield Handled.of(int(moment) / 1e9, [int(number)])


@contextmanager
def _jvm(
    task: ProgramTask, source: Path, chosen: Mapping[str, str], *arguments: object
) -> Iterator[RestJob]:
    """A JVM with the job of a program and its settings; killed at the end."""
    properties = task.path / "flink.properties"
    lines = {**chosen, "pipeline.object-reuse": "true"}
    properties.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    command = [java_tool("java") or "java", "-cp", _compiled(task, source), source.stem]
    command += map(str, (properties, *arguments))
    with printed(task).open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        yield asyncio.run(_job(int(chosen["rest.port"]), process))
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


def _compiled(task: ProgramTask, source: Path) -> str:
    """The class path of a program, which is compiled against the jars of PyFlink."""
    spec = find_spec("pyflink")
    assert spec is not None and spec.submodule_search_locations
    jars, classes = f"{spec.submodule_search_locations[0]}/lib/*", task.path / "classes"
    if not (classes / f"{source.stem}.class").exists():
        command = [java_tool("javac") or "javac", "--release", "17", "-cp", jars]
        subprocess.run([*command, "-d", str(classes), str(source)], check=True)
    return f"{classes}:{jars}"
