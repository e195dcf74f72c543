"""How fast `tidelog verify` is, and how much memory a process of it takes.

Invariant: a verification is the command in a process of its own, start-up included, of a store
that a job has left.
"""

import json
import resource
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Final

from tidelog_bench.embedded.meter import CLOCK
from tidelog_bench.embedded.run import measure, spec_of
from tidelog_bench.embedded.workload import WORKLOADS, Workload
from tidelog_bench.experiment import Bars, Experiment, Figure, Ratio
from tidelog_bench.measurement import Cell, Measurement, Reading, Size, Trial
from tidelog_bench.spark import prerequisites

ENGINES: Final = {
    "local": ("--engine", "local", "--jobs", "2"),
    "spark": ("--engine", "spark", "--master", "local[2]"),
}


def missing(variant: str) -> str | None:
    """Spark and Java for the engine `spark`."""
    return prerequisites.missing(variant) if variant == "spark" else None


def cells(size: Size) -> list[Cell]:
    """A small store and one whose table has many files."""
    workloads, seconds = {
        Size.QUICK: ([Workload(20_000, 16, draws=100_000)], 1.0),
        Size.STANDARD: ([WORKLOADS["16x50k"], Workload(400_000, 16, draws=1_000_000)], 5.0),
        Size.FULL: ([WORKLOADS["16x50k"], WORKLOADS["16x5M"]], 20.0),
    }[size]
    return [
        Cell(
            asdict(workload) | {"seconds": seconds},
            tuple(ENGINES),
            # Filling, running, and checking: all grow with the state.
            10.0 + seconds + workload.keys / 4e4,
        )
        for workload in workloads
    ]


def run(trial: Trial) -> Reading:
    """Fill a store and verify it."""
    store = trial.directory / "store"
    measure(spec_of(trial, warm_s=0.0), store=store, room=trial.directory)
    stored = sum(path.stat().st_size for path in store.rglob("*") if path.is_file())
    # Waited for by this process, its only child: the memory of children is that of the command.
    started = CLOCK.monotonic()
    checked = verify(trial.variant, store)
    seconds = CLOCK.monotonic() - started
    largest_kb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    figures = {
        "seconds": seconds,
        "gb_per_minute": stored / 1e9 / seconds * 60,
        "stored_mb": stored / 1e6,
        "checkpoints": float(checked),
        "largest_process_mb": largest_kb / 1024,
    }
    return Reading(figures)


def verify(engine: str, store: Path) -> int:
    """Run the command; returns how many checkpoints it restored and found right."""
    command = [sys.executable, "-m", "tidelog", "verify", str(store), "--json", *ENGINES[engine]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"verify ended with {done.returncode}: {done.stdout}{done.stderr}")
    return len(json.loads(done.stdout)["checkpoints"])


MEASUREMENT: Final = Measurement("verify", cells, run, missing)
EXPERIMENTS: Final = (
    Experiment(
        name="verify",
        title="Verification of checkpoints",
        question="How long does `tidelog verify` take, and does its memory grow with the state?",
        group="more",
        measurement=MEASUREMENT,
        figures=(
            Figure("seconds", "whole command", "s"),
            Figure("gb_per_minute", "of the store", "GB/min", "higher"),
            Figure("largest_process_mb", "largest process", "MB"),
            Figure("stored_mb", "store", "MB", "neither"),
            Figure("checkpoints", "checkpoints checked", "", "neither"),
        ),
        ratios=(Ratio("spark", "local"),),
        plots=(
            Bars("gb_per_minute", "GB of the store per minute"),
            Bars("largest_process_mb", "Largest process, MB"),
        ),
    ),
)
