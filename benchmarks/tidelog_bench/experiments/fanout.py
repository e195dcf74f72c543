"""Objects and requests of a checkpoint against the number of subtasks.

Invariants: every subtask has changes in every checkpoint; what is counted lies between the
completions of two checkpoints, so it belongs to a whole number of them, and begins when more are
complete than are retained, so that as much is deleted as is written.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tidelog_bench.embedded.checkpoint_window import CheckpointWindow
from tidelog_bench.embedded.jobs import fanned_out_count
from tidelog_bench.embedded.run import measure, spec_of
from tidelog_bench.experiment import Against, Experiment, Figure, Ratio
from tidelog_bench.measurement import Cell, Measurement, Reading, Setting, Size, Trial

_PARALLELISMS: Final = {
    Size.QUICK: (1, 50),
    Size.STANDARD: (1, 50, 200),
    Size.FULL: (1, 2, 5, 10, 20, 50, 100, 200),
}
_TIMES: Final[dict[Size, dict[str, float]]] = {
    # Materializations are as rare as by default: one in 180 checkpoints per subtask.
    Size.QUICK: {"checkpoint_s": 0.4, "materialize_s": 72.0, "checkpoints": 4, "seconds": 1.6},
    Size.STANDARD: {"checkpoint_s": 1.0, "materialize_s": 180.0, "checkpoints": 6, "seconds": 8.0},
    Size.FULL: {"checkpoint_s": 1.0, "materialize_s": 180.0, "checkpoints": 60, "seconds": 90.0},
}
_FIXED: Final[dict[str, Setting]] = {
    "latency_ms": 30.0,
    "mb_per_s": 50.0,
    "key_groups": 256,
    "keys_per_subtask": 50,
    "records_per_checkpoint": 20,
    "retain": 1,
    "settling": 2,
}
_DRAWS: Final = 100_000
_LONGEST_S: Final = 600.0


def cells(size: Size) -> Sequence[Cell]:
    """A cell per parallelism."""
    times = _TIMES[size]
    settle = times["checkpoint_s"] * 2
    return [
        Cell(
            {**_FIXED, **times, "parallelism": parallelism},
            ("on", "off"),
            2.0 + parallelism / 40 + settle + times["seconds"],
        )
        for parallelism in _PARALLELISMS[size]
    ]


@dataclass(frozen=True, slots=True)
class _Settings:
    parallelism: int
    keys_per_subtask: int
    records_per_checkpoint: int
    checkpoint_s: float
    settling: int
    checkpoints: int
    seconds: float


def measure_fanout(trial: Trial) -> Reading:
    """Count what a variant writes and asks for between two completed checkpoints."""
    settings = trial.read(_Settings)
    subtasks = settings.parallelism
    spec = spec_of(
        trial,
        keys=settings.keys_per_subtask * subtasks,
        draws=_DRAWS,
        changelog=trial.variant == "on",
        warm_s=0.0,
        seconds=_LONGEST_S,
        rate=settings.records_per_checkpoint * subtasks / settings.checkpoint_s,
        in_memory_store=True,
    )
    window = CheckpointWindow(
        settling=settings.settling, count=settings.checkpoints, seconds=settings.seconds
    )
    general = measure(
        spec, lambda stages: fanned_out_count(stages.read), window.watch, room=trial.directory
    )
    return Reading(
        {**window.figures(), "cores_used": general["cores_used"], "rss_mb": general["rss_mb"]},
        notes={"checkpoints": window.counted, "failed": general["checkpoints_failed"]},
    )


MEASUREMENT: Final = Measurement("fanout", cells, measure_fanout)

EXPERIMENTS: Final = (
    Experiment(
        name="fanout",
        title="Objects against parallelism",
        question="How many objects and requests does a checkpoint take as a job grows wider?",
        group="embedded",
        measurement=MEASUREMENT,
        figures=(
            Figure("objects_per_checkpoint", "objects per checkpoint", ""),
            Figure("requests_per_checkpoint", "requests per checkpoint", ""),
            Figure("dollars_per_day", "S3 bill of a day, at 1/s", "$"),
            Figure("kb_per_checkpoint", "uploaded per checkpoint", "kB"),
            Figure("p50_ms", "checkpoint, median", "ms"),
            Figure("table_objects_per_checkpoint", "table objects per checkpoint", ""),
            Figure("log_objects_per_checkpoint", "log objects per checkpoint", ""),
        ),
        ratios=(Ratio("on", "off"),),
        plots=(
            Against(
                "objects_per_checkpoint",
                "parallelism",
                "Objects per checkpoint, by parallelism",
                log_x=True,
                log_y=True,
            ),
            Against(
                "requests_per_checkpoint",
                "parallelism",
                "Requests per checkpoint, by parallelism",
                log_x=True,
                log_y=True,
            ),
            Against(
                "dollars_per_day",
                "parallelism",
                "S3 bill of a day in $, a checkpoint a second, by parallelism",
                log_x=True,
                log_y=True,
            ),
        ),
    ),
)
