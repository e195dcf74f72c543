"""What a batch of a Spark query takes with each state store.

Invariant: the stores run the same queries over the same input, one after the other, in an
application of their own each.
"""

from collections.abc import Sequence
from typing import Final

from tidelog_bench.experiment import Against, Bars, Experiment, Figure, OverTime, Plot
from tidelog_bench.measurement import Cell, Measurement, Points, Reading, Setting, Size, Trial
from tidelog_bench.spark.prerequisites import missing
from tidelog_bench.spark.stores import (
    QUICK_JVM,
    RATIOS,
    STORES,
    unsupported,
)

_OF_ANY_PARTITIONS: Final = ("aggregation", "window", "join", "transform")
QUERIES: Final = (*_OF_ANY_PARTITIONS, "long_keys")
"""All queries; the rows of the last one make changelogs of 10 MB in two partitions."""
_FIGURES: Final = (
    ("p50_ms", "median batch", "ms"),
    ("p99_ms", "99th percentile of batches", "ms"),
    ("commit_ms", "state commits, summed over tasks", "ms"),
    ("requests_per_batch", "requests per batch", "requests"),
    ("objects_per_batch", "objects written per batch", "objects"),
    ("uploaded_kb_per_batch", "uploaded per batch", "kB"),
    ("dollars_per_day", "requests of a day at a batch a second", "dollars"),
    ("cpu_ms_per_batch", "processor time per batch", "ms"),
)


def cells(size: Size) -> Sequence[Cell]:
    """One short cell of one query; three; or all queries, partitions and latencies."""
    if size is Size.QUICK:
        return [_cell(("aggregation",), 4, 30, warm=2, batches=5, limit_s=3, jvm=QUICK_JVM)]
    if size is Size.STANDARD:
        # A window is an aggregation with more rows, and latency 0 is no store that is used.
        return [
            _cell(("aggregation", "join"), 64, 30, warm=6, batches=20, limit_s=10),
            _cell(("transform",), 8, 30, warm=6, batches=30, limit_s=8),
            _cell(("long_keys",), 2, 30, warm=6, batches=20, limit_s=10),
        ]
    return [
        _cell(_OF_ANY_PARTITIONS, partitions, latency, warm=15, batches=60, limit_s=90)
        for partitions in (8, 64, 200)
        for latency in (0, 30)
    ] + [_cell(("long_keys",), 2, 30, warm=15, batches=60, limit_s=90)]


def _cell(
    queries: Sequence[str],
    partitions: int,
    latency_ms: int,
    *,
    warm: int,
    batches: int,
    limit_s: float,
    jvm: str = "",
) -> Cell:
    settings: dict[str, Setting] = {
        "queries": ",".join(queries),
        "partitions": partitions,
        "latency_ms": latency_ms,
        "mb_per_s": 50,
        "warm": warm,
        "batches": batches,
        "limit_s": limit_s,
        "maintenance_ms": 60_000,  # Spark's default
        "jvm": jvm,
    }
    expected_s = (4 if jvm else 7) + len(queries) * limit_s * (1 + warm / batches)
    return Cell(settings, STORES, expected_s)


def measure(trial: Trial) -> Reading:
    """One application; its queries one after the other, each from an empty checkpoint."""
    # These need pyspark.
    from tidelog_bench.spark.application import Batches, application  # noqa: PLC0415
    from tidelog_bench.spark.job import Job  # noqa: PLC0415

    figures: dict[str, float] = {}
    series: dict[str, Points] = {}
    notes: dict[str, object] = {}
    batches = trial.read(Batches)
    with application(
        trial.read(Job, store=trial.variant), trial.directory / "application"
    ) as running:
        notes["versions"] = running.versions
        for query in str(trial.settings["queries"]).split(","):
            if reason := unsupported(trial.variant, query):
                notes[query] = {"skipped": reason}
                continue
            found = batches.measure(running, query, trial.directory / query)
            figures |= {f"{query}_{name}": value for name, value in found.figures().items()}
            series |= {f"{query}_{name}": points for name, points in found.series().items()}
            notes[query] = found.notes()
    return Reading(figures, series, notes)


def _plots() -> list[Plot]:
    plots: list[Plot] = []
    for query in QUERIES:
        name = _TITLES[query]
        plots += [
            OverTime(f"{query}_batch_ms", f"{name}: duration of every batch", "ms"),
            OverTime(f"{query}_uploaded_kb", f"{name}: uploaded by every batch", "kB", log=True),
            Bars(f"{query}_dollars_per_day", f"{name}: requests of a day, in dollars", log=True),
        ]
    plots += [
        Against(
            f"{query}_objects_per_batch",
            "partitions",
            f"{_TITLES[query]}: objects per batch against partitions",
            log_x=True,
            log_y=True,
        )
        for query in ("aggregation", "join")
    ]
    return plots


_TITLES: Final = {
    "aggregation": "aggregation",
    "window": "sliding windows",
    "join": "stream-stream join",
    "transform": "transformWithState",
    "long_keys": "10 MB of changelog per partition",
}

_SHOWN: Final = [
    Figure(f"{query}_{name}", f"{_TITLES[query]}: {title}", unit)
    for name, title, unit in _FIGURES
    for query in QUERIES
]

MEASUREMENT: Final = Measurement("spark-commit", cells, measure, missing, shares_jvm=True)

EXPERIMENTS: Final = (
    Experiment(
        name="spark-commit",
        title="Batches of Spark queries by state store",
        question="What does making state durable add to a batch of a Spark query?",
        group="spark",
        measurement=MEASUREMENT,
        figures=_SHOWN,
        ratios=RATIOS,
        plots=_plots(),
    ),
)
