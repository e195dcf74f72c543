"""Objects and requests of a checkpoint against the number of subtasks.

Invariants: every subtask has changes in every checkpoint; what is counted lies between the
completions of two checkpoints, so it belongs to a whole number of them, at least one, and begins
when more are complete than are retained, so that as much is deleted as is written.
"""

import operator
from collections.abc import Sequence
from typing import Any, Final

from tidelog.runtime.graph import Job
from tidelog.runtime.status.distribution import percentile
from tidelog.storage import object_names
from tidelog_bench.embedded.jobs import OFF, ON, ListSource, NullSink
from tidelog_bench.embedded.meter import CLOCK, Mark
from tidelog_bench.embedded.run import Run, run_trial, spec_of, until
from tidelog_bench.embedded.words import Stages
from tidelog_bench.experiment import Cell, Experiment, Figure, Ratio, Reading, Size, Trial
from tidelog_bench.store import Traffic, daily

_PARALLELISMS: Final = {
    Size.QUICK: (1, 50),
    Size.STANDARD: (200,),
    Size.FULL: (1, 2, 5, 10, 20, 50, 100, 200),
}
_TIMES: Final[dict[Size, dict[str, float]]] = {
    # Materializations are as rare as by default: one in 180 checkpoints per subtask.
    Size.QUICK: {"checkpoint_s": 0.4, "materialize_s": 72.0, "checkpoints": 4, "seconds": 1.6},
    Size.STANDARD: {
        "checkpoint_s": 1.0,
        "materialize_s": 180.0,
        "checkpoints": 5,
        "seconds": 6.0,
        # Objects are counted: with 30 ms the tables of 200 subtasks take half a minute.
        "latency_ms": 2.0,
    },
    Size.FULL: {"checkpoint_s": 1.0, "materialize_s": 180.0, "checkpoints": 60, "seconds": 90.0},
}
_FIXED: Final = {
    "counted": True,
    "latency_ms": 30.0,
    "mb_per_s": 50.0,
    "key_groups": 256,
    "keys_per_subtask": 50,
    "records_per_checkpoint": 20,
    "retain": 1,
    "settling": 2,
}
_DRAWS: Final = 100_000
_NEVER_S: Final = 1e6
_TABLES: Final = (object_names.TABLES, object_names.MATERIALIZATIONS)


def cells(size: Size) -> Sequence[Cell]:
    times = _TIMES[size]
    narrow_s = 2.0 + times["checkpoint_s"] * 2 + times["seconds"]
    return [
        Cell({**_FIXED, **times, "parallelism": subtasks}, (ON, OFF), narrow_s + subtasks / 40)
        for subtasks in _PARALLELISMS[size]
    ]


def fanned_out_count(stages: Stages) -> Job:
    """Count words in as many subtasks as the job has, fed by one: n channels instead of n x n."""
    job = Job("word-count")
    stream = job.source(ListSource(stages.read), parallelism=1).key_by(lambda word: word)
    stream.aggregate(lambda _: 1, operator.add, name="count").sink(NullSink())
    return job


def measure(trial: Trial) -> Reading:
    """Count what a variant writes and asks for between two completed checkpoints."""
    of: Any = trial.settings
    spec = spec_of(
        trial,
        keys=of["keys_per_subtask"] * of["parallelism"],
        draws=_DRAWS,
        changelog=trial.variant == ON,
        warm_s=0.0,
        seconds=_NEVER_S,
        rate=of["records_per_checkpoint"] * of["parallelism"] / of["checkpoint_s"],
    )

    async def watch(run: Run) -> None:
        """Begin with the completion of checkpoint number `settling` after the fill; end after
        `checkpoints` more, or with the first one that completes after `seconds`.
        """
        await until(lambda: run.begun is not None and run.completed >= of["settling"])
        run.begin(Mark.now(0))
        first = last = run.completed
        ends = CLOCK.monotonic() + of["seconds"]
        while last - first < of["checkpoints"] and CLOCK.monotonic() < ends:
            await until(lambda: run.completed > last)  # noqa: B023
            last = run.completed
        run.end(Mark.now(0))

    run = run_trial(spec, fanned_out_count, trial.directory, watch=watch)
    written = [write.name for write in run.written]
    return Reading(figures_of(run.traffic, written, run.durations_s))


def figures_of(
    traffic: Traffic, written: Sequence[str], durations: Sequence[float]
) -> dict[str, float]:
    """Per checkpoint; dollars as if there was one a second, whatever this machine can do."""
    counted = len(durations)
    tables = sum(name.startswith(_TABLES) for name in written)
    segments = sum(name.startswith(object_names.SEGMENTS) for name in written)
    return {
        "objects_per_checkpoint": len(written) / counted,
        "table_objects_per_checkpoint": tables / counted,
        "log_objects_per_checkpoint": segments / counted,
        "requests_per_checkpoint": traffic.all_requests / counted,
        "kb_per_checkpoint": traffic.uploaded_bytes / 1e3 / counted,
        "dollars_per_day": daily(traffic, counted).total,
        "p50_ms": percentile(durations, 0.5) * 1e3,
    }


EXPERIMENT: Final = Experiment(
    name="fanout",
    title="Objects against parallelism",
    question="How many objects and requests does a checkpoint take as a job grows wider?",
    group="embedded",
    cells=cells,
    measure=measure,
    figures=(
        Figure("objects_per_checkpoint", "objects per checkpoint", ""),
        Figure("requests_per_checkpoint", "requests per checkpoint", ""),
        Figure("dollars_per_day", "S3 bill of a day, at 1/s", "$"),
        Figure("kb_per_checkpoint", "uploaded per checkpoint", "kB"),
        Figure("p50_ms", "checkpoint, median", "ms"),
        Figure("table_objects_per_checkpoint", "table objects per checkpoint", ""),
        Figure("log_objects_per_checkpoint", "log objects per checkpoint", ""),
    ),
    ratios=(Ratio(ON, OFF),),
)
