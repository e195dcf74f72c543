"""Restarts of a large state: how soon records pass, and how fast, until all of it is here and then.

Invariants: both variants restore the same state from the same store, with the same records after
it; the state is made once and stays in the cache of the user ($TIDELOG_CACHE), and a trial changes
nothing of it.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tidelog_bench.embedded.meter import CLOCK, size_mb
from tidelog_bench.embedded.restart import restart
from tidelog_bench.embedded.restart_state import StateSize
from tidelog_bench.experiment import Cell, Experiment, Figure, Ratio, Reading, Size, Trial
from tidelog_bench.session.children import in_child

WHOLE, AT_ONCE = "when-whole", "at-once"
_LINK: Final[dict[str, Any]] = {"latency_ms": 30.0, "mb_per_s": 100.0}
_SMALL: Final[dict[str, Any]] = {
    "state_gb": 0.2,
    "log_changes": 50_000,
    "checkpoint_s": 0.5,
    "warm_records": 200_000,
    "records": 200_000,
}
_LARGE: Final[dict[str, Any]] = {
    "state_gb": 2,
    "log_changes": 250_000,
    "checkpoint_s": 1.0,
    "warm_records": 600_000,
    "records": 600_000,
}
_LARGEST: Final = _LARGE | {"state_gb": 10, "warm_records": 1_500_000}
_STATES: Final = {
    Size.QUICK: (_SMALL,),
    Size.STANDARD: (_SMALL, _LARGE),
    Size.FULL: (_SMALL, _LARGE, _LARGEST),
}
_RATE: Final = 1_000.0
"""Records a second that a restart can handle before its state is here: does it ever stop?"""
_STEADY_S: Final = 10.0
_STEPS: Final = 8_192
_MADE_S_PER_GB: Final = 45.0


def cells(size: Size) -> Sequence[Cell]:
    """Uniform keys, and keys of Zipf's distribution, by size of the state; a job with records at
    a rate; and a program that has a loop of its own.
    """
    found = []
    for state in _STATES[size]:
        gb, records = state["state_gb"], state["warm_records"] + state["records"]
        expected_s = 1.5 + gb * 1e3 / _LINK["mb_per_s"] + records / 70_000
        for keys in ("uniform", "zipf"):
            settings = _LINK | state | {"use": "job", "keys": keys}
            found.append(Cell(settings, (WHOLE, AT_ONCE), expected_s, gb * _MADE_S_PER_GB / 2))
        steady = {"use": "job", "keys": "uniform", "rate": _RATE, "warm_records": 0}
        steady["records"] = int(_STEADY_S * _RATE)
        found.append(Cell(_LINK | state | steady, (WHOLE, AT_ONCE), expected_s + _STEADY_S))
        steps = {"use": "program", "keys": "uniform", "warm_records": 0, "records": _STEPS}
        found.append(Cell(_LINK | state | steps, (WHOLE, AT_ONCE), expected_s, gb * _MADE_S_PER_GB))
    return found


def measure(trial: Trial) -> Reading:
    """Restart from a store whose objects are links to those of the cached state."""
    made = in_child(trial.read(StateSize).directory)
    store, work = trial.directory / "store", trial.directory / "work"
    shutil.copytree(made, store, copy_function=_link)
    started = CLOCK.monotonic()
    measured = in_child(restart, trial, store, work, started)
    left = sum(1 for path in work.rglob("*") if path.is_file()) if work.exists() else 0
    more = {"left_files": left, "left_mb": size_mb(work)}
    return Reading(measured.figures | more, {"records_by_second": measured.by_second})


def _link(source: str, target: str) -> None:
    """An object of the store: it is never changed where it is, only replaced."""
    Path(target).symlink_to(source)


EXPERIMENT: Final = Experiment(
    name="restart",
    title="Restarts of a large state",
    question="How soon does a restart handle records, and how fast, when it does not wait for its "
    "state?",
    group="embedded",
    cells=cells,
    measure=measure,
    figures=(
        Figure("first_output_s", "from the start of the process to the first output", "s"),
        Figure("to_8192_s", "to 8,192 records", "s"),
        Figure("whole_s", "until the state is whole", "s"),
        Figure("to_512_s", "to 512 records", "s"),
        Figure("to_65536_s", "to 65,536 records", "s"),
        Figure("until_whole_per_s", "until the state is whole", "records/s", "higher"),
        Figure("afterwards_per_s", "afterwards", "records/s", "higher"),
        Figure("stop_until_whole_ms", "longest stop until the state is whole", "ms"),
        Figure("stop_ms", "longest stop", "ms"),
        Figure("checkpoint_hydrating_p99_ms", "checkpoint until the state is whole, p99", "ms"),
        Figure("checkpoint_steady_p99_ms", "checkpoint afterwards, p99", "ms"),
        Figure("requests", "requests to the store", "", "neither"),
        Figure("downloaded_mb", "downloaded", "MB"),
        Figure("anonymous_mb", "peak memory without mapped files", "MB"),
        Figure("peak_mb", "peak memory", "MB"),
        Figure("left_files", "files left in the work directory", ""),
        Figure("left_mb", "left in the work directory", "MB"),
    ),
    ratios=(Ratio(AT_ONCE, WHOLE),),
)
