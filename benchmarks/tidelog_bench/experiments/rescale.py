"""Restore with more or fewer subtasks, against the same number, of the same checkpoint.

Invariant: what is restored was made by the same records with the same subtasks: tables of all
words, and behind them the log of the same records, whatever was handled while tables went up aside.
"""

from dataclasses import asdict, dataclass, replace
from typing import Final

from tidelog_bench.embedded.jobs import word_count
from tidelog_bench.embedded.restoring import restore
from tidelog_bench.embedded.run import RunSpec, measure, spec_of
from tidelog_bench.embedded.workload import Workload
from tidelog_bench.experiment import Bars, Experiment, Figure, Ratio
from tidelog_bench.measurement import Cell, Measurement, Reading, Size, Trial
from tidelog_bench.session.children import in_child

_BEFORE: Final = 4
"""Subtasks of the job that is restored."""
_SAME: Final = f"to {_BEFORE}"
_FAR: Final = ("to 8", "to 1")
_OTHERS: Final = ("to 8", "to 2", "to 1")
_NEVER_S: Final = 1e6
_MATERIALIZE_S: Final = 0.4
_UPLOAD_RATE: Final = 3_000.0
"""Records per second meanwhile: few, but more than the first run's one buffer in that time."""


def cells(size: Size) -> list[Cell]:
    """Words of 200 bytes, so that tables are large for their rows."""
    # The upload is longer than all tables take to reach the local disk.
    workload, records, upload_s, variants = {
        Size.QUICK: (Workload(20_000, 200, draws=20_000), 20_000, 1.5, (_SAME, "to 8")),
        Size.STANDARD: (Workload(200_000, 200, draws=200_000), 200_000, 3.0, (_SAME, *_FAR)),
        Size.FULL: (Workload(1_000_000, 200, draws=4_000_000), 1_000_000, 10.0, (_SAME, *_OTHERS)),
    }[size]
    settings = asdict(workload) | {
        "parallelism": _BEFORE,
        "log_records": records,
        "upload_s": upload_s,
        "checkpoint_s": 0.5,
        "latency_ms": 30.0,
        "mb_per_s": 50.0,
    }
    return [Cell(settings, variants, 6.0 + upload_s + workload.keys / 3e4 + records / 1e5)]


@dataclass(frozen=True, slots=True)
class _Settings:
    log_records: int
    upload_s: float


def run(trial: Trial) -> Reading:
    """Make the checkpoint in a process of its own and restore it in this one."""
    in_child(fill, trial)
    spec = _spec(trial, parallelism=int(trial.variant.removeprefix("to ")))
    found = restore(spec, word_count, ["first"], trial.directory / "store", trial.directory)
    return Reading({**found.figures, "changes": found.changes})


def fill(trial: Trial) -> None:
    """Three runs, each from where the one before ended: every word once, a slow one that uploads
    the tables, and the records whose log stays after them.
    """
    spec, settings, room = _spec(trial), trial.read(_Settings), trial.directory
    spec = replace(spec, link=None)
    for each in (
        replace(spec, records=1),
        replace(spec, materialize_s=_MATERIALIZE_S, rate=_UPLOAD_RATE, seconds=settings.upload_s),
        replace(spec, records=1 + settings.log_records),
    ):
        measure(each, store=room / "store", room=room)


def _spec(trial: Trial, **more: int) -> RunSpec:
    """The run that is restored."""
    return spec_of(trial, warm_s=0.0, materialize_s=_NEVER_S, replay_s=_NEVER_S, **more)


MEASUREMENT: Final = Measurement("rescale", cells, run)
EXPERIMENTS: Final = (
    Experiment(
        name="rescale",
        title="Restore with another parallelism",
        question="What does a restore with more or fewer subtasks take, against the same number?",
        group="more",
        measurement=MEASUREMENT,
        figures=(
            Figure("running_s", "until all tasks run", "s"),
            Figure("cpu_s", "CPU until a record is handled", "s"),
            Figure("downloaded_mb", "downloaded", "MB"),
            Figure("requests", "requests", ""),
            Figure("changes", "changes replayed", "", "neither"),
            Figure("state_mb", "state in the checkpoint", "MB", "neither"),
            Figure("table_mb", "of it tables", "MB", "neither"),
            Figure("rss_mb", "resident memory", "MB"),
        ),
        ratios=tuple(Ratio(other, _SAME) for other in _OTHERS),
        plots=(
            Bars("running_s", "Seconds until all tasks run"),
            Bars("downloaded_mb", "MB downloaded"),
        ),
    ),
)
