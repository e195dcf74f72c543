"""The same word count, session window and interval join on tidelog and on other systems."""

from collections.abc import Sequence

from tidelog_bench.experiment import Cell, Experiment, Figure, Ratio, Reading, Size, Trial
from tidelog_bench.peers.systems import SYSTEMS, TIDELOG, missing, run_program

_WORKERS = "tidelog-workers"
_FILES = "tidelog-files"
_STREAM = "flink-stream"
_TWO_CORES = (_FILES, _WORKERS, _STREAM, "spark-rocksdb")
_SMALL = {
    "keys": 50_000,
    "key_bytes": 16,
    # Drawn uniformly: quotes, targets and recorded sessions name the cell by it.
    "skewed": False,
    "draws": 2_000_000,
    "warm_s": 4.0,
    "seconds": 4.0,
    "checkpoint_s": 1.0,
    "batch_words": 524_288,
}
_QUICK = _SMALL | {"keys": 20_000, "draws": 524_288, "batch_words": 65_536}
_QUICK |= {"warm_s": 0.5, "seconds": 2.0}


def cells(size: Size) -> Sequence[Cell]:
    """Quick: 20,000 short words; standard: 50,000; full: larger ones too, and many words by two
    workers.
    """
    every = tuple(SYSTEMS)
    if size is Size.QUICK:
        return [Cell(_QUICK, every, expected_s=10.0)]
    if size is Size.STANDARD:
        return [Cell(_SMALL, every, expected_s=20.0)]
    long = _SMALL | {"warm_s": 15.0, "seconds": 30.0}
    large = long | {"key_bytes": 200, "keys": 200_000, "draws": 2_000_000}
    return [
        Cell(long, every, expected_s=70.0),
        Cell(large, every, expected_s=90.0),
        Cell(large | {"keys": 1_000_000, "draws": 4_000_000}, every, expected_s=240.0),
        Cell(_SMALL | {"keys": 5_000_000}, _TWO_CORES, expected_s=75.0),
        Cell(_SMALL | {"key_bytes": 200, "keys": 500_000}, _TWO_CORES, expected_s=50.0),
    ]


def measure(trial: Trial) -> Reading:
    """Run one system in a process of its own, in its own environment."""
    checked = trial.kept / "checked"
    reading = run_program(trial, "run", restarts=not checked.exists())
    checked.touch()
    return reading


EXPERIMENT = Experiment(
    name="peers",
    title="Word count on other systems",
    question="What does durable state cost here, and on other systems, for the same words?",
    group="peers",
    cells=cells,
    measure=measure,
    figures=(
        Figure("records_per_s", "throughput", "records/s", "higher"),
        Figure("cpu_us_per_record", "CPU per record", "us"),
        Figure("commits", "commits in the measured time", "", "neither"),
        Figure("checkpoint_p50_ms", "checkpoint, median", "ms"),
        Figure("durable_mb", "durable bytes at the end", "MB"),
        Figure("peak_mb", "peak memory", "MB"),
        Figure("cores_used", "cores used", "", "neither"),
    ),
    ratios=(
        # Systems with one worker; then two workers beside one, beside two slots, and Spark's one.
        *(
            Ratio(TIDELOG.name, name)
            for name in SYSTEMS
            if name not in (TIDELOG.name, _FILES, _WORKERS, _STREAM)
        ),
        *(Ratio(_WORKERS, name) for name in (_FILES, _STREAM, "spark-rocksdb")),
    ),
    missing=missing,
    also=("tidelog_bench.peers.programs", "benchmarks/tidelog_bench/peers/programs"),
)

_EVENT_SYSTEMS = ("tidelog", "bytewax", "pyflink")


def event_cells(size: Size) -> Sequence[Cell]:
    """Quick: 20,000 rows; standard and full: 150,000."""
    quick = size is Size.QUICK
    common = {
        "rows": 20_000 if quick else 150_000,
        "keys": 10_000,
        "rows_per_event_s": 1000 if quick else 4000,
        "within_ms": 5000,
        "checkpoint_s": 1.0,
    }
    return [
        Cell({"job": job, **common}, _EVENT_SYSTEMS, expected_s=10.0 if quick else 14.0)
        for job in ("session", "join")
    ]


def measure_events(trial: Trial) -> Reading:
    return run_program(trial, "run_events")


EVENTS = Experiment(
    name="peers-events",
    title="Sessions and joins on other systems",
    question="What do a session window and an interval join cost here, and on other systems?",
    group="peers",
    cells=event_cells,
    measure=measure_events,
    figures=(
        Figure("rows_per_s", "throughput", "rows/s", "higher"),
        Figure("cpu_us_per_row", "CPU per row", "us"),
        Figure("results", "results", "", "neither"),
        Figure("durable_mb", "durable bytes at the end", "MB"),
        Figure("peak_mb", "peak memory", "MB"),
        Figure("cores_used", "cores used", "", "neither"),
    ),
    ratios=tuple(Ratio("tidelog", name) for name in _EVENT_SYSTEMS[1:]),
    missing=missing,
    also=("tidelog_bench.peers.programs",),
)
