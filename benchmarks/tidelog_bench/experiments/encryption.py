"""What encryption costs: the word count with an encrypted store, against the same without.

Invariant: the variants differ in nothing but the encryption of objects; both upload tables in the
measured time.
"""

from dataclasses import asdict
from typing import Final

from tidelog_bench.embedded.run import measure, spec_of
from tidelog_bench.embedded.workload import Workload
from tidelog_bench.experiment import Bars, Experiment, Figure, Ratio
from tidelog_bench.measurement import Cell, Measurement, Reading, Size, Trial

VARIANTS: Final = ("encrypted", "plain")
FIGURES: Final = ("records_per_s", "cpu_us_per_record", "checkpoint_p50_ms", "uploaded_mb_per_s")
_LINK: Final = {"latency_ms": 30.0, "mb_per_s": 100.0}
_START_S: Final = 2.0


def cells(size: Size) -> list[Cell]:
    """Short words, and long ones whose log and tables are large."""
    warm, seconds = {Size.QUICK: (0.5, 2.0), Size.STANDARD: (2.0, 8.0), Size.FULL: (5.0, 20.0)}[
        size
    ]
    short, long = Workload(50_000, 16, draws=2_000_000), Workload(300_000, 200, draws=2_000_000)
    workloads = [Workload(50_000, 200, draws=300_000)] if size is Size.QUICK else [short, long]
    times = {"warm_s": warm, "seconds": seconds, "materialize_s": warm + seconds / 2}
    return [
        Cell(
            asdict(workload) | _LINK | times,
            VARIANTS,
            _START_S + warm + seconds + workload.keys / 1e5,
        )
        for workload in workloads
    ]


def run(trial: Trial) -> Reading:
    """Count words with the trial's variant of the store; returns the figures."""
    encrypted = trial.variant == "encrypted"
    spec = spec_of(trial, encrypted=encrypted, in_memory_store=True)
    found = measure(spec, room=trial.directory)
    notes = {"table_uploads": found["snapshots"]}
    return Reading({name: found[name] for name in FIGURES if name in found}, notes=notes)


EXPERIMENTS: Final = (
    Experiment(
        name="encryption",
        title="Encryption",
        question="What does encryption by the job cost?",
        group="more",
        measurement=Measurement("encryption", cells, run),
        figures=(
            Figure("records_per_s", "throughput", "records/s", "higher"),
            Figure("cpu_us_per_record", "CPU per record", "us"),
            Figure("checkpoint_p50_ms", "checkpoint, median", "ms"),
            Figure("uploaded_mb_per_s", "uploaded a second", "MB/s", "neither"),
        ),
        ratios=(Ratio("encrypted", "plain"),),
        plots=(Bars("cpu_us_per_record", "CPU per record, microseconds"),),
    ),
)
