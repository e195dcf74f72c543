"""How fast `tidelog verify` restores and checks all that a store holds, with each engine.

Invariant: what is timed is the whole command, its start included, over the same store for all
trials of a variant: retained checkpoints of one table, and of a log as large as the table.
"""

import subprocess
import sys
from collections.abc import Sequence
from typing import Final

from tidelog.errors import TidelogError
from tidelog_bench.embedded.meter import CLOCK, size_mb
from tidelog_bench.embedded.restore import fill
from tidelog_bench.experiment import Cell, Experiment, Figure, Ratio, Reading, Size, Trial
from tidelog_bench.session.children import in_child
from tidelog_bench.spark.job import missing

_LOCAL: Final = "local"
_SPARK: Final = "spark"


def cells(size: Size) -> Sequence[Cell]:
    """One store of long words: small, some hundred megabytes, or a gigabyte."""
    keys = {Size.QUICK: 20_000, Size.STANDARD: 400_000, Size.FULL: 3_000_000}[size]
    settings = {"keys": keys, "key_bytes": 200, "log_records": keys, "parallelism": 4}
    expected_s, first_s = 3.0 + keys / 150_000, 3.0 + keys / 60_000
    return [Cell({"job": "wordcount", **settings}, (_LOCAL, _SPARK), expected_s, first_s)]


def measure(trial: Trial) -> Reading:
    """Run the command over the store that the first trial makes."""
    store = trial.kept / "made" / "store"
    if not store.exists():
        in_child(fill, trial)
        trial.directory.rename(trial.kept / "made")
    stored_mb = size_mb(store)
    command = [sys.executable, "-m", "tidelog", "verify", str(store), "--json"]
    began = CLOCK.monotonic()
    ended = subprocess.run(
        [*command, "--engine", trial.variant], capture_output=True, text=True, check=False
    )
    seconds = CLOCK.monotonic() - began
    if ended.returncode:
        raise TidelogError(
            "tidelog verify",
            expected="a store without a fault",
            found=f"exit code {ended.returncode}: {(ended.stdout + ended.stderr)[-2000:]}",
            action="see what it printed",
        )
    rate = stored_mb / seconds * 60
    return Reading({"mb_per_minute": rate, "seconds": seconds, "stored_mb": stored_mb})


EXPERIMENT: Final = Experiment(
    name="verify",
    title="Verifying a store",
    question="How long does it take to restore and check every checkpoint of a store?",
    group="embedded",
    cells=cells,
    measure=measure,
    figures=(
        Figure("mb_per_minute", "verified a minute", "MB/min", "higher"),
        Figure("seconds", "the whole command", "s"),
        Figure("stored_mb", "size of the store", "MB", "neither"),
    ),
    ratios=(Ratio(_SPARK, _LOCAL),),
    missing=lambda variant: missing(variant) if variant == _SPARK else None,
    also=("tidelog.verify",),
)
