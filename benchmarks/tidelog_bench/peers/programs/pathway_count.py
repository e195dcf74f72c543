"""The word count on Pathway, its persistence on.

Invariants: Pathway runs in processes of its own, so the first can be killed, and the second has
nothing but what is on disk; they alone import it. No record passes through Python: a word is a line
of a file, and of all counts only that of the mark, the last line of each file, is handed to Python.
"""

import asyncio
import json
import multiprocessing
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tidelog_bench.embedded.meter import CLOCK, Mark
from tidelog_bench.peers.feed import PIECE, Feed
from tidelog_bench.peers.task import Task, check
from tidelog_bench.peers.usage import figures, tree_mark

_MARK: Final = "#"
"""The last line of each file. No word: those are Base64."""
_AHEAD_S: Final = 4.0
"""Counts follow a commit or two after what is read, so files hold the words of several."""
_LOOK_S: Final = 0.02
_SPAWN: Final = multiprocessing.get_context("spawn")
PACKAGE = "pathway"
NOTES = {
    "durable": "every word read, in the input's snapshot, and the files read, whole, in a local "
    "directory; no counts: a restart counts all words again",
    "not_done": "no state of operators (PersistenceMode.OPERATOR_PERSISTING), which needs a "
    "licence key; no network; words are read from local files, which is in the figures",
}


def run(task: Task) -> dict[str, float]:
    """Count and be killed; then let a second process count from the snapshot alone."""
    words = task.words()
    feed = Feed(task.path, words, min(PIECE, task.batch_words), mark=_MARK)
    feed.fill()
    counting = _Counting(feed, task)
    try:
        found = asyncio.run(_measured(counting, feed, task))
    finally:
        counting.kill()
    shutil.rmtree(feed.input)
    output = task.path / "counts.jsonl"
    replay = _SPAWN.Process(target=_replay, args=(task, feed.input, output))
    replay.start()
    replay.join()
    if replay.exitcode:
        raise RuntimeError(f"Pathway's second run ended with {replay.exitcode}")
    check("Pathway", _counts(output), words, feed.position)
    return found


class _Counting:
    """The measured run, in a process of its own so that it can be killed."""

    def __init__(self, feed: Feed, task: Task) -> None:
        self._feed = feed
        self._files = _SPAWN.Value("q", 0)
        self._commits = _SPAWN.Value("q", 0)
        arguments = (task, feed.input, self._files, self._commits)
        self._process = _SPAWN.Process(target=_count, args=arguments, daemon=True)
        self._process.start()

    def position(self) -> int:
        """Words whose counts are known; raises RuntimeError when the process runs no more."""
        if not self._process.is_alive():
            raise RuntimeError(f"Pathway ended with {self._process.exitcode}")
        files = int(self._files.value)
        return self._feed.ends[files - 1] if files else 0

    def commits(self) -> int:
        """How many times were closed, each with the words of a commit interval."""
        return int(self._commits.value)

    def kill(self) -> None:
        """End the process where it is."""
        self._process.kill()
        self._process.join()


async def _measured(counting: _Counting, feed: Feed, task: Task) -> dict[str, float]:
    """Figures between two commits; then wait until everything is durable."""
    await _until(lambda: counting.position() >= feed.position)
    await feed.keep_busy(counting.position, task.warm_s, _AHEAD_S)
    start, before = await _next_commit(counting, feed)
    await feed.keep_busy(counting.position, task.seconds, _AHEAD_S)
    end, after = await _next_commit(counting, feed)
    found = figures(start, end, after - before, task.durable)
    await _until(lambda: counting.position() >= feed.position)
    # A snapshot may have begun before the last words; the one after it has them all.
    await CLOCK.sleep(3 * task.checkpoint_s)
    return found


async def _next_commit(counting: _Counting, feed: Feed) -> tuple[Mark, int]:
    """The moment at which counts are next seen to change, and the commits until then."""
    position = counting.position()
    feed.keep_ahead(position, feed.piece_words)
    await _until(lambda: counting.position() > position)
    return tree_mark(counting.position()), counting.commits()


async def _until(reached: Callable[[], bool]) -> None:
    while not reached():
        await CLOCK.sleep(_LOOK_S)


def _count(task: Task, source: Path, files: Any, commits: Any) -> None:
    """Count until killed; keep how many files were counted and how many times were closed."""
    import pathway as pw  # noqa: PLC0415

    def marked(key: Any, row: dict[str, Any], time: int, is_addition: bool) -> None:
        if is_addition:
            files.value = row["n"]

    def closed(time: int) -> None:
        commits.value += 1

    counts = _counted(task, source)
    pw.io.null.write(counts)
    pw.io.subscribe(counts.filter(counts.data == _MARK), on_change=marked, on_time_end=closed)
    _run_graph(task)


def _replay(task: Task, source: Path, output: Path) -> None:
    """Count what the snapshot holds, and end."""
    import pathway as pw  # noqa: PLC0415
    from pathway.internals.api import PersistenceMode, SnapshotAccess  # noqa: PLC0415

    pw.io.jsonlines.write(_counted(task, source), output)
    _run_graph(
        task,
        snapshot_access=SnapshotAccess.REPLAY,
        persistence_mode=PersistenceMode.BATCH,
        continue_after_replay=False,
    )


def _counted(task: Task, source: Path) -> Any:
    import pathway as pw  # noqa: PLC0415

    commit_ms = round(task.checkpoint_s * 1000)
    words = pw.io.plaintext.read(source, name="words", autocommit_duration_ms=commit_ms)
    return words.groupby(words.data).reduce(words.data, n=pw.reducers.count())


def _run_graph(task: Task, **replay: Any) -> None:
    import pathway as pw  # noqa: PLC0415

    backend = pw.persistence.Backend.filesystem(task.durable)
    interval_ms = round(task.checkpoint_s * 1000)
    config = pw.persistence.Config(backend, snapshot_interval_ms=interval_ms, **replay)
    pw.run(monitoring_level=pw.MonitoringLevel.NONE, persistence_config=config)


def _counts(output: Path) -> dict[str, int]:
    """The last count of each word; a row with a negative `diff` takes an earlier one back."""
    with output.open() as lines:
        rows = [json.loads(line) for line in lines]
    counts = {row["data"]: row["n"] for row in rows if row["diff"] > 0}
    del counts[_MARK]
    return counts
