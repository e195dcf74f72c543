"""The word count as Pathway runs it: its graph, its persistence, and the replay of a snapshot.

Invariant: no record passes through Python: a word is a line of a file, and of all counts only that
of the mark, the last line of each file, is handed to Python.
"""

from pathlib import Path
from typing import Any

import pathway as pw
from pathway.internals.api import PersistenceMode, SnapshotAccess

from tidelog_bench.peers.task import Task


def count(task: Task, source: Path, mark: str, files: Any, commits: Any) -> None:
    """Count until killed; keep how many files were counted and how many times were closed."""

    def marked(key: Any, row: dict[str, Any], time: int, is_addition: bool) -> None:
        if is_addition:
            files.value = row["n"]

    def closed(time: int) -> None:
        commits.value += 1

    counts = _counted(task, source)
    pw.io.null.write(counts)
    pw.io.subscribe(counts.filter(counts.data == mark), on_change=marked, on_time_end=closed)
    _run(task)


def replay(task: Task, source: Path, output: Path) -> None:
    """Count what the snapshot holds, and end."""
    pw.io.jsonlines.write(_counted(task, source), output)
    _run(
        task,
        snapshot_access=SnapshotAccess.REPLAY,
        persistence_mode=PersistenceMode.BATCH,
        continue_after_replay=False,
    )


def _counted(task: Task, source: Path) -> Any:
    commit_ms = round(task.checkpoint_s * 1000)
    words = pw.io.plaintext.read(source, name="words", autocommit_duration_ms=commit_ms)
    return words.groupby(words.data).reduce(words.data, n=pw.reducers.count())


def _run(task: Task, **replay: Any) -> None:
    backend = pw.persistence.Backend.filesystem(task.durable)
    interval_ms = round(task.checkpoint_s * 1000)
    config = pw.persistence.Config(backend, snapshot_interval_ms=interval_ms, **replay)
    pw.run(monitoring_level=pw.MonitoringLevel.NONE, persistence_config=config)
