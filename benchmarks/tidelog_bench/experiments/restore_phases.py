"""Restore: where its time goes, with the log and without, with local copies and without.

Invariant: every variant restores the same state, and with the log every restore replays the same
number of records behind a materialization that has all records before them.
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from tidelog_bench.embedded.jobs import timed
from tidelog_bench.embedded.restore_fixture import State, fill, restored_spec
from tidelog_bench.embedded.restoring import Restored, restore
from tidelog_bench.experiment import Bars, Distribution, Experiment, Figure, Ratio
from tidelog_bench.measurement import Cell, Measurement, Reading, Setting, Size, Trial
from tidelog_bench.session.children import in_child

_STORE: Final[dict[str, Setting]] = {"latency_ms": 30.0, "mb_per_s": 50.0, "checkpoint_s": 0.5}
_PLAIN: Final = ("on", "off")
_ALL: Final = ("on", "off", "on-local", "off-local")
_Job = tuple[dict[str, Setting], tuple[str, ...]]
_JOBS: Final[dict[Size, tuple[_Job, ...]]] = {
    Size.QUICK: (
        ({"job": "wordcount", "key_bytes": 16, "keys": 30_000, "log_records": 30_000}, _ALL),
    ),
    Size.STANDARD: (
        ({"job": "wordcount", "key_bytes": 16, "keys": 250_000, "log_records": 250_000}, _PLAIN),
        ({"job": "wordcount", "key_bytes": 200, "keys": 250_000, "log_records": 250_000}, _ALL),
        ({"job": "window", "slides": 10, "window_records": 20_000, "log_records": 4_000}, _PLAIN),
    ),
    Size.FULL: (
        ({"job": "wordcount", "key_bytes": 16, "keys": 5_000_000, "log_records": 1_000_000}, _ALL),
        ({"job": "wordcount", "key_bytes": 16, "keys": 5_000_000, "log_records": 5_000_000}, _ALL),
        ({"job": "wordcount", "key_bytes": 200, "keys": 1_000_000, "log_records": 1_000_000}, _ALL),
        ({"job": "window", "slides": 10, "window_records": 100_000, "log_records": 10_000}, _ALL),
        ({"job": "window", "slides": 5, "window_records": 100_000, "log_records": 10_000}, _ALL),
    ),
}


def cells(size: Size) -> Sequence[Cell]:
    """The word count with short and long words, the sliding window with many slides and fewer."""
    return [
        Cell({**_STORE, **job}, variants, _expected_s({**job})) for job, variants in _JOBS[size]
    ]


def _expected_s(job: dict[str, Any]) -> float:
    if job["job"] == "wordcount":
        return 4.0 + float(job["keys"] / 80_000 + job["log_records"] / 150_000)
    return 4.0 + float((job["window_records"] * 1.5 + job["log_records"]) * job["slides"]) / 50_000


def measure_restore(trial: Trial) -> Reading:
    """Run the job in a process of its own until there is a checkpoint; restore it in this one."""
    in_child(fill, trial)
    state, words = trial.read(State), ["first"]
    # In windows it is late: what counts is that it has come through.
    first = words if state.words else timed(lambda _: words)(0) or []
    store = trial.directory / "store"
    found = restore(restored_spec(trial), state.build, first, store, trial.directory)
    return Reading(_figures(found))


def _figures(found: Restored) -> dict[str, float]:
    return {
        "first_record_s": found.first_record_s,
        "takeover_s": found.takeover_s,
        **asdict(found.phases),
        "restore_s": found.restore_s,
        "start_s": found.start_s,
        "replayed_changes": found.changes,
        **found.figures,
    }


MEASUREMENT: Final = Measurement("restore-phases", cells, measure_restore)

EXPERIMENTS: Final = (
    Experiment(
        name="restore-phases",
        title="Restore, phase by phase",
        question="How long does a restart take, and where does the time go?",
        group="embedded",
        measurement=MEASUREMENT,
        figures=(
            Figure("first_record_s", "until the first record is handled", "s"),
            Figure("restore_s", "state restored", "s"),
            Figure("download_s", "table files downloaded", "s"),
            Figure("open_s", "tables opened", "s"),
            Figure("fetch_log_s", "log downloaded", "s"),
            Figure("replay_s", "log merged and loaded", "s"),
            Figure("takeover_s", "until the store's log of checkpoints is taken over", "s"),
            Figure("start_s", "tasks wired and started", "s"),
            Figure("downloaded_mb", "downloaded", "MB"),
            Figure("requests", "requests to the store", ""),
            Figure("replayed_changes", "changes replayed", "", "neither"),
            Figure("state_mb", "state as it is stored", "MB", "neither"),
            Figure("table_mb", "table files of it", "MB", "neither"),
            Figure("cpu_s", "processor", "s"),
        ),
        ratios=(Ratio("on", "off"), Ratio("on-local", "on"), Ratio("off-local", "off")),
        plots=(
            Bars("first_record_s", "Until the first record is handled, s"),
            Distribution(
                ("takeover_s", "download_s", "open_s", "fetch_log_s", "replay_s", "start_s"),
                "Phases of a restart, s; they overlap",
                log=False,
            ),
        ),
    ),
)
