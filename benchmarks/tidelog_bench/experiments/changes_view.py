"""How fast Spark reads a job's log: view `changes` against Parquet, and against rows of Python.

Invariant: a trial fails unless its rows are all changes that the job made, each once.
"""

import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Final

from tidelog.errors import InvariantError
from tidelog_bench.embedded.run import RunSpec, measure, spec_of
from tidelog_bench.embedded.workload import Workload
from tidelog_bench.experiment import Bars, Experiment, Figure, Ratio
from tidelog_bench.measurement import Cell, Measurement, Reading, Size, Trial
from tidelog_bench.spark.prerequisites import missing

VARIANTS: Final = ("tidelog", "parquet", "rows")
_NEVER_S: Final = 86_400.0
"""No materialization cuts the log."""
_START_S: Final = 18.0
"""Seconds that a job and Spark take to start, roughly."""


def cells(size: Size) -> list[Cell]:
    """A log of so many records of a word count over 50,000 words."""
    counts, reads = {
        Size.QUICK: ([50_000], 2),
        Size.STANDARD: ([1_000_000], 4),
        Size.FULL: ([500_000, 2_000_000, 8_000_000], 7),
    }[size]
    return [
        Cell(
            asdict(Workload(50_000, 16, draws=min(3_000_000, count)))
            | {"records": count, "reads": reads, "cores": 2},
            VARIANTS,
            (_START_S if size is not Size.QUICK else 7.0) + count / 5e4,
        )
        for count in counts
    ]


def log_spec(trial: Trial) -> RunSpec:
    """The job that leaves the log."""
    return spec_of(trial, warm_s=0.0, materialize_s=_NEVER_S, replay_s=_NEVER_S)


@dataclass(frozen=True, slots=True)
class _Settings:
    cores: int
    reads: int


def run(trial: Trial) -> Reading:
    """Fill a store and read its log, once to warm up and then as often as asked for."""
    from tidelog_bench.spark import changes  # noqa: PLC0415  (pyspark)

    store, parquet = trial.directory / "store", trial.directory / "parquet"
    measure(log_spec(trial), store=store, room=trial.directory)
    settings = trial.read(_Settings)
    spark = changes.session(settings.cores, trial.directory)
    try:
        frame = changes.source(spark, trial.variant, store, parquet)
        warm = changes.read(frame)
        reads = [changes.read(frame) for _ in range(settings.reads)]
    finally:
        spark.stop()
    return reading(warm, reads)


def reading(warm: Mapping[str, float], reads: list[dict[str, float]]) -> Reading:
    """Figures of reads that all found the same rows; raises InvariantError when they did not."""
    count = warm["changes"]
    # Changes of one subtask without a gap: 0, 1, 2, ...
    expected = count * (count - 1) / 2
    if warm["seqnos"] != expected or any(read["seqnos"] != expected for read in reads):
        raise InvariantError(
            "the rows that were read",
            expected=f"changes 0 to {count - 1:.0f}, each once",
            found=f"sums of their numbers of {[read['seqnos'] for read in reads]}",
            action="report this as a defect of the data source",
        )
    seconds = statistics.median(read["seconds"] for read in reads)
    figures = {
        "changes_per_s": count / seconds,
        "mb_per_s": warm["mb"] / seconds,
        "seconds": seconds,
        "changes": count,
    }
    return Reading(figures, notes={"reads_s": [round(read["seconds"], 3) for read in reads]})


MEASUREMENT: Final = Measurement("changes-view", cells, run, missing, "reading")
EXPERIMENTS: Final = (
    Experiment(
        name="changes-view",
        title="Reading the log with Spark",
        question="How fast does Spark read a job's changes, against Parquet with the same rows?",
        group="more",
        measurement=MEASUREMENT,
        figures=(
            Figure("changes_per_s", "changes read", "1/s", "higher"),
            Figure("mb_per_s", "keys and values read", "MB/s", "higher"),
            Figure("seconds", "one read", "s"),
            Figure("changes", "changes in the log", "", "neither"),
        ),
        ratios=(Ratio("tidelog", "parquet"), Ratio("tidelog", "rows")),
        plots=(Bars("changes_per_s", "Changes read per second"),),
    ),
)
