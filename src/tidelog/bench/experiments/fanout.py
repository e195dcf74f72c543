"""Objects and requests of a checkpoint against the number of subtasks.

Invariants: every subtask has changes in every checkpoint; what is counted lies between the
completions of two checkpoints, so it belongs to a whole number of them, and begins when more are
complete than are retained, so that as much is deleted as is written.
"""

from collections.abc import Sequence
from typing import Any, Final

from tidelog.bench.embedded.jobs import fanned_out_count
from tidelog.bench.embedded.run import RunSpec, measure
from tidelog.bench.embedded.turns import Turns
from tidelog.bench.embedded.workload import Workload
from tidelog.bench.experiment import Against, Experiment, Figure, Ratio
from tidelog.bench.measurement import Cell, Measurement, Reading, Setting, Size, Trial
from tidelog.bench.store.manners import Manners

_PARALLELISMS: Final = {
    Size.QUICK: (1, 20, 200),
    Size.STANDARD: (1, 10, 50, 200),
    Size.FULL: (1, 2, 5, 10, 20, 50, 100, 200),
}
_TIMES: Final[dict[Size, dict[str, Any]]] = {
    # Materializations are as rare as by default: one in 180 checkpoints per subtask.
    Size.QUICK: {"checkpoint_s": 0.4, "materialize_s": 72.0, "checkpoints": 4, "seconds": 1.6},
    Size.STANDARD: {"checkpoint_s": 1.0, "materialize_s": 180.0, "checkpoints": 8, "seconds": 10.0},
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
    settle = float(times["checkpoint_s"]) * 2
    return [
        Cell(
            {**_FIXED, **times, "parallelism": parallelism},
            ("on", "off"),
            2.0 + parallelism / 40 + settle + float(times["seconds"]),
        )
        for parallelism in _PARALLELISMS[size]
    ]


def measure_fanout(trial: Trial) -> Reading:
    """Count what a variant writes and asks for between two completed checkpoints."""
    settings: Any = trial.settings
    turns = Turns(
        settling=settings["settling"], count=settings["checkpoints"], seconds=settings["seconds"]
    )
    general = measure(
        _spec(trial),
        lambda stages: fanned_out_count(stages.read),
        watch=turns.watch,
        room=trial.directory,
    )
    return Reading(
        {**turns.figures(), "cores_used": general["cores_used"], "rss_mb": general["rss_mb"]},
        notes={"checkpoints": turns.counted, "failed": general["checkpoints_failed"]},
    )


def _spec(trial: Trial) -> RunSpec:
    settings: Any = trial.settings
    parallelism = settings["parallelism"]
    rate = settings["records_per_checkpoint"] * parallelism / settings["checkpoint_s"]
    return RunSpec(
        Workload(settings["keys_per_subtask"] * parallelism, 16, draws=_DRAWS),
        changelog=trial.variant == "on",
        checkpoint_s=settings["checkpoint_s"],
        materialize_s=settings["materialize_s"],
        warm_s=0.0,
        seconds=_LONGEST_S,
        rate=rate,
        link=Manners(settings["latency_ms"], settings["mb_per_s"], trial.seed),
        in_memory_store=True,
        parallelism=parallelism,
        key_groups=settings["key_groups"],
        retain=settings["retain"],
        seed=trial.seed,
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
