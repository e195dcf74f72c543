"""What a batch of a Spark query takes with each state store, and what a query on many executors
costs in a day.

Invariants: the stores run the same queries over the same input, one after the other, in an
application of their own each. Of the bill only counts of requests are read, never durations: one
executor's share of the partitions is run with a fixed trigger, and with a maintenance interval of
sixty batches, as many as Spark's default minute has at a batch a second (in a quick session of
six). Of its requests those that an executor makes (changelogs, snapshots, state
directories) are counted for every executor, and those of the query once.
"""

from collections.abc import Sequence
from typing import Final

from tidelog_bench.experiment import (
    Bars,
    Cell,
    Experiment,
    Figure,
    OverTime,
    Plot,
    Points,
    Reading,
    Setting,
    Size,
    Trial,
)
from tidelog_bench.spark.batches import (
    PUT,
    BatchWindow,
    Counts,
    Sum,
    by_kind,
    dollars,
    requests,
)
from tidelog_bench.spark.job import (
    CHANGELOG_STORE,
    QUICK_JVM,
    RATIOS,
    STORES,
    TIDELOG,
    Job,
    missing,
    unsupported,
)

TITLES: Final = {
    "aggregation": "aggregation",
    "window": "sliding windows",
    "join": "stream-stream join",
    "transform": "transformWithState",
    "long_keys": "10 MB of changelog per partition",
}
"""All queries; the rows of the last one make changelogs of 10 MB in two partitions."""
_OF_ANY_PARTITIONS: Final = ("aggregation", "window", "join", "transform")
_PER_QUERY: Final = ("commits", "offsets", "roll-up", "segment", "other")
"""Classes of files that the query writes once, whatever number of executors it has: their small
changelogs are one segment of the driver."""
_MAINTENANCE_BATCHES: Final = 60
_QUICK_BATCHES: Final = 6


def cells(size: Size) -> Sequence[Cell]:
    """One short cell of one query; three; or all queries, partitions and latencies. Then the bill
    of 200 partitions on 10 executors.
    """
    if size is Size.QUICK:
        few = (CHANGELOG_STORE, TIDELOG)
        return [
            _cell(("aggregation",), 4, 30, warm=2, batches=5, limit_s=3, jvm=QUICK_JVM),
            _bill("aggregation", 2, _QUICK_BATCHES, 150, _QUICK_BATCHES, few, QUICK_JVM),
        ]
    if size is Size.STANDARD:
        return [
            # A window is an aggregation with more rows, and latency 0 is no store that is used.
            _cell(("aggregation", "join"), 64, 30, warm=6, batches=20, limit_s=10),
            _cell(("transform",), 8, 30, warm=6, batches=30, limit_s=8),
            _cell(("long_keys",), 2, 30, warm=6, batches=20, limit_s=10),
            # One maintenance is in the middle of what is counted: as often as on average.
            _bill("aggregation", 30, 60, 250),
        ]
    return [
        *(
            _cell(_OF_ANY_PARTITIONS, partitions, latency, warm=15, batches=60, limit_s=90)
            for partitions in (8, 64, 200)
            for latency in (0, 30)
        ),
        _cell(("long_keys",), 2, 30, warm=15, batches=60, limit_s=90),
        _bill("aggregation", 120, 180, 400),
        _bill("join", 120, 180, 1000),
    ]


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


def _bill(
    query: str,
    warm: int,
    batches: int,
    trigger_ms: int,
    maintenance_batches: int = _MAINTENANCE_BATCHES,
    variants: tuple[str, ...] = STORES,
    jvm: str = "",
) -> Cell:
    settings: dict[str, Setting] = {
        "queries": query,
        "executors": 10,
        "partitions": 20,
        "latency_ms": 0,
        "mb_per_s": 0,
        "warm": warm,
        "batches": batches,
        "limit_s": 3600,
        "trigger_ms": trigger_ms,
        "maintenance_ms": trigger_ms * maintenance_batches,
        "jvm": jvm,
    }
    starts_s = 12
    return Cell(settings, variants, starts_s + (warm + batches) * trigger_ms / 1e3)


def measure(trial: Trial) -> Reading:
    """One application; its queries one after the other, each from an empty checkpoint."""
    # It needs pyspark.
    from tidelog_bench.spark.application import Batches, application  # noqa: PLC0415

    figures: dict[str, float] = {}
    series: dict[str, Points] = {}
    notes: dict[str, object] = {}
    batches, executors = trial.read(Batches), trial.settings.get("executors")
    job = trial.read(Job, store=trial.variant)
    with application(job, trial.directory / "application") as running:
        notes["versions"] = running.versions
        for query in str(trial.settings["queries"]).split(","):
            if reason := unsupported(trial.variant, query):
                notes[query] = {"skipped": reason}
                continue
            found = batches.measure(running, query, trial.directory / query)
            if executors is not None:
                bill = bill_of(found, int(executors))
                return Reading(bill.figures, notes={**bill.notes, **notes})
            figures |= {f"{query}_{name}": value for name, value in found.figures().items()}
            series |= {f"{query}_{name}": points for name, points in found.series().items()}
            notes[query] = found.notes()
    return Reading(figures, series, notes)


def bill_of(found: BatchWindow, executors: int) -> Reading:
    """Requests and dollars of a query on so many executors, from the batches of one."""
    batches, whole = len(found.progress), scaled(found.counts, executors)
    figures = {
        "dollars_per_day": round(dollars(whole, batches), 2),
        "requests_per_batch": round(requests(whole) / batches, 3),
        "objects_per_batch": round(requests(whole, PUT) / batches, 3),
    }
    by_class = {
        file: round(dollars({key: of for key, of in whole.items() if key[1] == file}, batches), 2)
        for file in sorted({file for _, file in whole})
    }
    notes = {
        "requests_per_batch": by_kind(whole, batches),
        "dollars_by_class": by_class,
        "of_one_executor": by_kind(found.counts, batches),
    }
    return Reading(figures, notes=notes)


def scaled(counts: Counts, executors: int) -> Counts:
    """Requests of the whole query from those of one executor and the driver."""
    return {
        (kind, file): found
        if file in _PER_QUERY
        else Sum(found.requests * executors, found.bytes * executors)
        for (kind, file), found in counts.items()
    }


_BILL: Final = "200 partitions on 10 executors"
_PLOTS: Final[list[Plot]] = [
    plot
    for query, name in TITLES.items()
    for plot in (
        OverTime(f"{query}_batch_ms", f"{name}: duration of every batch", "ms"),
        OverTime(f"{query}_uploaded_kb", f"{name}: uploaded by every batch", "kB", log=True),
        Bars((f"{query}_objects_per_batch",), f"{name}: objects per batch", log=True),
        Bars((f"{query}_dollars_per_day",), f"{name}: requests of a day", log=True),
    )
]

EXPERIMENT: Final = Experiment(
    name="spark-commit",
    title="Batches of Spark queries by state store",
    question="What does making state durable add to a batch of a Spark query, and what do the "
    "requests of 200 partitions cost in a day at a batch a second?",
    group="spark",
    cells=cells,
    measure=measure,
    figures=(
        Figure("dollars_per_day", f"{_BILL}: requests of a day at a batch a second", "dollars"),
        Figure("requests_per_batch", f"{_BILL}: requests per batch", "requests"),
        Figure("objects_per_batch", f"{_BILL}: objects written per batch", "objects"),
        *(
            Figure(f"{query}_{name}", f"{of}: {title}", unit)
            for name, title, unit in (
                ("p50_ms", "median batch", "ms"),
                ("p99_ms", "99th percentile of batches", "ms"),
                ("commit_ms", "state commits, summed over tasks", "ms"),
                ("requests_per_batch", "requests per batch", "requests"),
                ("objects_per_batch", "objects written per batch", "objects"),
                ("uploaded_kb_per_batch", "uploaded per batch", "kB"),
                ("dollars_per_day", "requests of a day at a batch a second", "dollars"),
                ("cpu_ms_per_batch", "processor time per batch", "ms"),
            )
            for query, of in TITLES.items()
        ),
    ),
    main=("aggregation_p50_ms", "dollars_per_day"),
    ratios=RATIOS,
    plots=(*_PLOTS, Bars(("dollars_per_day",), f"{_BILL}: requests of a day", log=True)),
    missing=missing,
    shares_jvm=True,
)
