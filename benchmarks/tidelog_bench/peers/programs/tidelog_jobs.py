"""The word count, a session window and an interval join on tidelog's embedded runtime, on a local
directory; and the word count by `tidelog run` over a directory of files, with one or two workers.

Invariants: the library's defaults but for workers and the interval of checkpoints; garbage is
collected as in `tidelog run`; objects are synced before they have a name, as `LocalStore` does it.
The command is the one of a user; it is killed, never stopped, and a job in this process reads the
counts from what the store restores, and not a word of the input.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, TextIO

from tidelog import Session, TextFileSource, status_of
from tidelog.__main__ import collect_rarely
from tidelog.checkpoint.config import CheckpointConfig
from tidelog.connectors.files.lines import JsonLinesSource
from tidelog.connectors.files.sink import FileSink
from tidelog.connectors.program import ForeachSink
from tidelog.effects import Effects
from tidelog.errors import TidelogError
from tidelog.runtime.config import JobConfig
from tidelog.runtime.graph import Job, KeyedStream
from tidelog.runtime.runner import JobRunner
from tidelog.runtime.sink import Sink
from tidelog.storage import object_names
from tidelog.storage.local import LocalStore
from tidelog_bench.embedded.jobs import ListSource, word_count
from tidelog_bench.embedded.meter import CLOCK, Mark, between, tree_mark
from tidelog_bench.embedded.run import RunSpec, run_trial
from tidelog_bench.peers.feed import PIECE, Feed, measured
from tidelog_bench.peers.task import DELAY_MS, EventTask, ProgramTask, Task, figures

WORKERS: Final = {"tidelog-files": 1, "tidelog-workers": 2}
_JOB: Final = "tidelog_bench.embedded.jobs:followed"
_REPORT_S: Final = 0.1
_LOOK_S: Final = 0.01
_TURNS_S: Final = 2.0


def run(task: Task) -> dict[str, float]:
    """Count; then read the counts from a job that the store alone restores."""
    return _by_command(task) if task.variant in WORKERS else _in_process(task)


def _in_process(task: Task) -> dict[str, float]:
    collect_rarely()
    spec = RunSpec(
        task.keys,
        task.draws,
        task.key_bytes,
        checkpoint_s=task.checkpoint_s,
        warm_s=task.warm_s,
        seconds=task.seconds,
        seed=task.seed,
    )
    counted = run_trial(
        spec, lambda stages: word_count(ListSource(stages.read)), task.path, store=task.durable
    )
    start, end = (moment.mark for moment in counted.measured)
    written = counted.store.writes
    manifests = [w.ended for w in written if w.name.startswith(object_names.CHECKPOINTS)]
    found = task.figures(start, end, between(manifests, start, end))
    ended = ListSource(lambda position: None, endless=False)
    counts, _ = _restored(task, lambda sink: word_count(ended, sink))
    task.check(counts, task.words(), end.records)
    return found


def _restored(task: Task, build: Callable[[Sink], Job]) -> tuple[dict[str, int], JobRunner]:
    """What a job that the store alone restores emits, and its runner."""
    pairs: list[tuple[str, int]] = []
    runner = _run(task, build(ForeachSink(pairs.append)))
    return dict(pairs), runner


def run_events(task: EventTask) -> dict[str, float]:
    """Run the job in this process, to the end of its files."""
    collect_rarely()
    drawn, begun = task.write(), list[Mark]()
    _run(task, _events(task), lambda: begun.append(tree_mark(0)))
    return figures(task, drawn, begun[0], tree_mark(task.rows))


def _run(task: ProgramTask, job: Job, on_start: Callable[[], None] | None = None) -> JobRunner:
    effects = Effects()
    config = JobConfig(
        work_dir=task.path / "work", checkpoint=CheckpointConfig(interval=task.checkpoint_s)
    )
    runner = JobRunner(job, LocalStore(task.durable, effects), config, effects)
    with closing(effects.offload):
        asyncio.run(runner.run(on_start))
    return runner


def _events(task: EventTask) -> Job:
    job = Job("events")
    inputs = [_keyed(job, task, name) for name in task.sides]
    sink = FileSink(task.results, fields=task.fields)
    if task.job == "session":
        inputs[0].window(Session(task.within_ms)).sum(lambda row: row.value).sink(sink)
    else:
        pairs = inputs[0].join(inputs[1], (0, task.within_ms))
        pairs.map(
            lambda pair: (pair[0].key, pair[0].time, pair[0].value, pair[1].time, pair[1].value)
        ).sink(sink)
    return job


def _keyed(job: Job, task: EventTask, name: str) -> KeyedStream:
    rows = job.source(JsonLinesSource(task.side(name).parent), name=name)
    return rows.event_time(lambda row: row.time, max_delay_ms=DELAY_MS).key_by(lambda row: row.key)


class _Running:
    """A `tidelog run --json`, as its newest report says."""

    ahead_s = 0.0
    least_pieces = 12
    """Three million words: the source lists the directory every second, and a worker says every
    second how far it is, so a speed is known too late to feed by it."""
    until_durable = 2
    """One may have begun before the last words; the one after it has them all."""

    def __init__(self, process: subprocess.Popen[bytes], reports: TextIO) -> None:
        self._process = process
        self._reports = reports
        self._partial = ""
        self._report: dict[str, Any] = {}

    def position(self) -> int:
        """Words read, as of each worker's last word to its parent, up to a second ago."""
        if self._process.poll() is not None:
            raise RuntimeError(f"tidelog run ended: {json.dumps(self._newest().get('error'))}")
        return int(self._newest().get("records_read", 0))

    async def newest_position(self) -> int:
        """The position when the first subtask of the source has just said something new.

        Workers say so in turn, so the others are as late at each such moment. A subtask without
        a file says nothing new, so it is waited for no longer than two turns.
        """
        before, until = self._first(), CLOCK.monotonic() + _TURNS_S
        while self._first() == before and CLOCK.monotonic() < until:
            self.position()
            await CLOCK.sleep(_LOOK_S)
        return self.position()

    def checkpoints(self) -> int:
        report = self._newest()
        return int(report["checkpoints"]["completed"]) if report else 0

    def durations(self) -> dict[str, float]:
        """The median duration of the newest checkpoints, in ms, where some have completed."""
        p50_s = self._newest()["checkpoints"]["p50_s"]
        return {} if p50_s is None else {"checkpoint_p50_ms": round(p50_s * 1e3, 1)}

    def _first(self) -> float:
        source = next(each for each in self._newest()["operators"] if each["source"])
        return next(float(t["busy_s"]) for t in source["tasks"] if t["subtask"] == 0)

    def _newest(self) -> dict[str, Any]:
        """The last whole line that the command has printed."""
        *whole, self._partial = (self._partial + self._reports.read()).split("\n")
        if whole:
            self._report = json.loads(whole[-1])
        return self._report


def _by_command(task: Task) -> dict[str, float]:
    words = task.words()
    feed = Feed(task.path, words, min(PIECE, task.batch_words))
    feed.fill()
    with _running(task, feed.input) as job:
        found = asyncio.run(measured(job, feed, task)) | job.durations()
    counts, runner = _restored(task, lambda sink: word_count(TextFileSource(feed.input), sink))
    if read := status_of(runner).records_read:
        raise TidelogError(
            "the restored job",
            expected="a checkpoint that has all words",
            found=f"{read} words that were read again",
            action="see why the last checkpoints had not completed",
        )
    task.check(counts, words, feed.position)
    return found


@contextmanager
def _running(task: Task, source: Path) -> Iterator[_Running]:
    """The command; killed at the end, and its workers with it."""
    command = [sys.executable, "-m", "tidelog", "run", _JOB, "--input", str(source)]
    command += ["--store", str(task.durable), "--workers", str(WORKERS[task.variant])]
    command += ["--checkpoint-interval", f"{round(task.checkpoint_s * 1000)}ms"]
    command += ["--json", "--report-interval", f"{round(_REPORT_S * 1000)}ms"]
    reports = task.path / "reports"
    with (
        reports.open("wb") as output,
        reports.open() as lines,
        subprocess.Popen(command, stdout=output) as process,
    ):
        try:
            yield _Running(process, lines)
        finally:
            process.kill()
