"""A session window and an interval join of rows on tidelog and on other systems."""

from collections.abc import Sequence

from tidelog_bench.experiment import Bars, Cell, Experiment, Figure, Ratio, Reading, Size, Trial
from tidelog_bench.peers.systems import missing, run_program

_SYSTEMS = ("tidelog", "bytewax", "pyflink")


def cells(size: Size) -> Sequence[Cell]:
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
        Cell({"job": job, **common}, _SYSTEMS, expected_s=10.0 if quick else 14.0)
        for job in ("session", "join")
    ]


def measure(trial: Trial) -> Reading:
    """Run one system in a process of its own, in its own environment."""
    return run_program(trial, "run_events")


EXPERIMENT = Experiment(
    name="peers-events",
    title="Sessions and joins on other systems",
    question="What do a session window and an interval join cost here, and on other systems?",
    group="peers",
    cells=cells,
    measure=measure,
    figures=(
        Figure("rows_per_s", "throughput", "rows/s", "higher"),
        Figure("cpu_us_per_row", "CPU per row", "us"),
        Figure("results", "results", "", "neither"),
        Figure("durable_mb", "durable bytes at the end", "MB"),
        Figure("peak_mb", "peak memory", "MB"),
        Figure("cores_used", "cores used", "", "neither"),
    ),
    main=("rows_per_s", "cpu_us_per_row"),
    ratios=tuple(Ratio("tidelog", name) for name in _SYSTEMS[1:]),
    plots=(
        Bars(("rows_per_s",), "Rows per second", log=True),
        Bars(("cpu_us_per_row",), "CPU per row", log=True),
    ),
    missing=missing,
    also=("tidelog_bench.peers.programs",),
)
