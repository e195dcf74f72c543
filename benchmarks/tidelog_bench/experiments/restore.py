"""Restores: phase by phase, with local copies, and with another parallelism.

Invariant: every variant restores the same state, and with the log every restore replays the same
number of records after a materialization that has all records before them.
"""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from tidelog_bench.embedded.jobs import OFF, ON
from tidelog_bench.embedded.restore import RESCALED, fill, restore
from tidelog_bench.experiment import Cell, Experiment, Figure, Ratio, Reading, Size, Trial
from tidelog_bench.session.children import in_child

_RESTORED: Final[dict[str, Any]] = {"latency_ms": 30.0, "mb_per_s": 50.0, "checkpoint_s": 0.5}
_LOCAL: Final = (ON, OFF, f"{ON}-local", f"{OFF}-local")
_BEFORE: Final = 4
"""Subtasks of the job that is restored with other numbers of them."""
_SAME: Final = f"{RESCALED}{_BEFORE}"
_MORE, _HALF, _ONE = (f"{RESCALED}{number}" for number in (8, 2, 1))


def _words(key_bytes: int, keys: int, log_records: int, **more: int) -> dict[str, Any]:
    job = {"job": "wordcount", "key_bytes": key_bytes, "keys": keys}
    return _RESTORED | job | {"log_records": log_records, **more}


def _windows(slides: int, window_records: int, log_records: int) -> dict[str, Any]:
    job = {"job": "window", "slides": slides}
    return _RESTORED | job | {"window_records": window_records, "log_records": log_records}


_JOBS: Final = {
    Size.QUICK: (
        (_words(16, 30_000, 30_000), _LOCAL),
        (_words(200, 20_000, 20_000, parallelism=_BEFORE), (_SAME, _MORE)),
    ),
    Size.STANDARD: (
        (_words(16, 250_000, 250_000), (ON, OFF)),
        (_words(200, 250_000, 250_000), _LOCAL),
        (_windows(10, 20_000, 4_000), (ON, OFF)),
        (_words(200, 200_000, 200_000, parallelism=_BEFORE), (_SAME, _MORE, _ONE)),
    ),
    Size.FULL: (
        (_words(16, 5_000_000, 1_000_000), _LOCAL),
        (_words(16, 5_000_000, 5_000_000), _LOCAL),
        (_words(200, 1_000_000, 1_000_000), _LOCAL),
        (_windows(10, 100_000, 10_000), _LOCAL),
        (_windows(5, 100_000, 10_000), _LOCAL),
        (_words(200, 1_000_000, 1_000_000, parallelism=_BEFORE), (_SAME, _MORE, _HALF, _ONE)),
    ),
}


def cells(size: Size) -> Sequence[Cell]:
    """The word count with short and long words, the sliding window with many slides and fewer; and
    the word count with other numbers of subtasks.
    """
    return [Cell(job, variants, 2.5, _made_s(job)) for job, variants in _JOBS[size]]


def _made_s(job: dict[str, Any]) -> float:
    if job["job"] == "wordcount":
        return 3.0 + float(job["keys"] + job["log_records"]) / 80_000
    return 3.0 + float((job["window_records"] * 1.5 + job["log_records"]) * job["slides"]) / 50_000


def measure(trial: Trial) -> Reading:
    """Restore a copy of the checkpoint that the first trial makes in a process of its own."""
    # Local copies are known by the place of their store: all trials of a variant have one place.
    made, here = trial.kept / "made", replace(trial, directory=trial.kept / "here")
    if not made.exists():
        here.directory.mkdir()
        in_child(fill, here)
        here.directory.rename(made)
    shutil.rmtree(here.directory, ignore_errors=True)
    shutil.copytree(made, here.directory)
    return Reading(restore(here))


EXPERIMENT: Final = Experiment(
    name="restore",
    title="Restores",
    question="How long does a restart take, also with other numbers of subtasks, and where does "
    "the time go?",
    group="embedded",
    cells=cells,
    measure=measure,
    figures=(
        Figure("first_record_s", "until the first record is handled", "s"),
        Figure("running_s", "until all tasks run", "s"),
        Figure("restore_s", "state restored", "s"),
        Figure("download_s", "table files downloaded", "s"),
        Figure("open_s", "tables opened", "s"),
        Figure("fetch_log_s", "log downloaded", "s"),
        Figure("replay_s", "log merged and loaded", "s"),
        Figure("takeover_s", "until the store's log of checkpoints is taken over", "s"),
        Figure("start_s", "tasks wired and started", "s"),
        Figure("downloaded_mb", "downloaded", "MB"),
        Figure("requests", "requests to the store", ""),
        Figure("replayed_changes", "changes replayed from the log", "", "neither"),
        Figure("changes_per_s", "changes replayed a second", "1/s", "higher"),
        Figure("state_mb", "state as it is stored", "MB", "neither"),
        Figure("table_mb", "table files of it", "MB", "neither"),
        Figure("cpu_s", "processor until a record is handled", "s"),
        Figure("rss_mb", "resident memory", "MB"),
    ),
    ratios=(
        Ratio(ON, OFF),
        Ratio(f"{ON}-local", ON),
        Ratio(f"{OFF}-local", OFF),
        *(Ratio(other, _SAME) for other in (_MORE, _HALF, _ONE)),
    ),
)
