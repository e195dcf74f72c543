"""Performance stability: how late records are when they arrive a little slower than a system can
take them, with tables being uploaded; by size of the state.

Invariant: all systems handle numbers with equally many keys in the same two phases, which
`tidelog_bench.peers.phases` describes; how late a record is means the same for all of them.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from tidelog.__main__ import collect_rarely
from tidelog.runtime.memory import MemoryParts
from tidelog.runtime.status.observe import status_of
from tidelog_bench.embedded.meter import CLOCK, Mark, tree_peak_mb
from tidelog_bench.embedded.run import Run, run_trial, spec_of, until
from tidelog_bench.embedded.steady import Load, latest
from tidelog_bench.experiment import Cell, Experiment, Figure, Ratio, Reading, Size, Trial
from tidelog_bench.peers.phases import Phase, SteadyTask, two_phases
from tidelog_bench.peers.systems import missing as peer_missing
from tidelog_bench.peers.systems import run_program
from tidelog_bench.spark.job import CHANGELOG_STORE, TIDELOG, Job
from tidelog_bench.spark.job import missing as spark_missing

_MODELLED, _LOCAL, _FLINK = "tidelog", "tidelog-local", "flink-stream"
_SPARK: Final = {"spark-rocksdb": CHANGELOG_STORE, "spark-tidelog": TIDELOG}
_VARIANTS: Final = (_MODELLED, _LOCAL, _FLINK, *_SPARK)
_ROW_BYTES: Final = 190
"""What a row takes of the rows' part of the memory: sixteen characters of key, and a number."""
_COMMON: Final[dict[str, Any]] = {
    "latency_ms": 30.0,
    "mb_per_s": 50.0,
    "memory_mib": 128,
    "checkpoint_s": 1.0,
    "share": 0.95,
    "partitions": 2,
}
_CELLS: Final[dict[Size, tuple[tuple[float, ...], dict[str, Any]]]] = {
    Size.QUICK: (
        (1.0,),
        {"memory_mib": 32, "checkpoint_s": 0.5, "materialize_s": 1.5}
        | {"warm_s": 1.0, "testing_s": 1.5, "running_s": 3.0, "batch_rows": 20_000},
    ),
    # The table is uploaded two times at least in each running phase.
    Size.STANDARD: (
        (0.2, 1.0, 4.0),
        {"materialize_s": 8.0, "batch_rows": 50_000}
        | {"warm_s": 4.0, "testing_s": 8.0, "running_s": 20.0},
    ),
    Size.FULL: (
        (0.2, 1.0, 4.0),
        {"materialize_s": 20.0, "batch_rows": 50_000}
        | {"warm_s": 10.0, "testing_s": 30.0, "running_s": 120.0},
    ),
}
"""States in times of the rows' part of the memory, and the rest of the settings."""
_STARTS_S: Final = 8.0


def cells(size: Size) -> Sequence[Cell]:
    """Quick: as much state as rows in memory; else a fifth, as much, and four times as much."""
    states, settings = _CELLS[size]
    common = _COMMON | settings
    rows = MemoryParts.of(common["memory_mib"] << 20).rows // _ROW_BYTES
    seconds = 2 * common["warm_s"] + common["testing_s"] + common["running_s"]
    return [
        Cell({**common, "state": state, "keys": int(rows * state)}, _VARIANTS, _STARTS_S + seconds)
        for state in states
    ]


def measure(trial: Trial) -> Reading:
    if trial.variant == _FLINK:
        return run_program(trial, "run_steady")
    task = trial.read(SteadyTask, variant=trial.variant, directory=str(trial.directory))
    if trial.variant not in _SPARK:
        collect_rarely()
        return Reading(two_phases(task, lambda rate, seconds: _run(trial, task, rate, seconds)))
    # It needs pyspark.
    from tidelog_bench.spark.steady import run_steady  # noqa: PLC0415

    job = trial.read(Job, store=_SPARK[trial.variant], maintenance_ms=int(task.materialize_s * 1e3))
    batch_rows: Any = trial.settings["batch_rows"]
    return run_steady(task, job, batch_rows)


def _run(trial: Trial, task: SteadyTask, rate: float | None, seconds: float) -> Phase:
    """One phase of tidelog, in this process."""
    load, keys, seed = Load(rate), task.keys, task.seed

    def key_of(number: int) -> str:
        # The hash of a tuple of numbers is the same in every process.
        return f"{number if number < keys else hash((seed, number)) % keys:016x}"

    async def watch(run: Run) -> None:
        await until(lambda: bool(load.handled) and load.handled[-1].last >= keys)
        await CLOCK.sleep(task.warm_s)
        run.begin(Mark.now(status_of(run.runner).records_read))
        await CLOCK.sleep(seconds)
        run.end(Mark.now(status_of(run.runner).records_read))

    spec = spec_of(trial, keys=0, draws=0, options={"memory": task.memory_mib << 20})
    store = None
    if trial.variant == _LOCAL:
        spec, store = replace(spec, link=None), task.path / f"store-{rate}"
    job = latest(load, key_of)
    run = run_trial(spec, lambda stages: job, task.path, watch=watch, store=store)
    return Phase(load.handled, keys, run.durations_s, tree_peak_mb())


def missing(variant: str) -> str | None:
    """Why a system cannot run here, and what to install; None when it can."""
    if variant in _SPARK:
        return spark_missing(variant)
    return peer_missing(variant) if variant == _FLINK else None


EXPERIMENT: Final = Experiment(
    name="stability",
    title="Performance stability",
    question="How late are records that arrive at 95 % of what a system can take, while it saves "
    "and uploads its state?",
    group="peers",
    cells=cells,
    measure=measure,
    figures=(
        Figure("records_per_s", "highest throughput", "records/s", "higher"),
        Figure("late_p99_ms", "lateness, p99", "ms"),
        Figure("late_p999_ms", "lateness, p99.9", "ms"),
        Figure("stop_ms", "longest stop", "ms"),
        Figure("checkpoint_p99_ms", "checkpoint, p99", "ms"),
        Figure("late_p50_ms", "lateness, median", "ms"),
        Figure("late_max_ms", "lateness, most", "ms"),
        Figure("checkpoint_p50_ms", "checkpoint, median", "ms"),
        Figure("checkpoint_max_ms", "checkpoint, longest", "ms"),
        Figure("checkpoints", "checkpoints in the running phase", "", "neither"),
        Figure("arriving_per_s", "arriving in the running phase", "records/s", "higher"),
        Figure("peak_mb", "peak memory", "MB"),
    ),
    ratios=(
        Ratio(_LOCAL, _FLINK),
        Ratio(_MODELLED, "spark-rocksdb"),
        Ratio("spark-tidelog", "spark-rocksdb"),
    ),
    missing=missing,
    also=(
        "tidelog_bench.peers.programs.flink_stream",
        "benchmarks/tidelog_bench/peers/programs",
        "native/spark-state-store/src/main",
        "native/spark-benchmark/src/main",
    ),
)
