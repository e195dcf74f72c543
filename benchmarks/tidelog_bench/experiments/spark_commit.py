"""What a batch of a Spark query takes with each state store, and what a query on many executors
costs in a day.

Invariants: the stores run the same queries over the same input, in an application of their own
each that goes on for all pairs: while one runs batches, the others wait. Of the bill only counts of
requests are read, never durations: one executor's share of the partitions is run with a fixed
trigger, and with a maintenance interval of sixty batches, as many as Spark's default minute has at
a batch a second (in a quick session of six). Of its requests those that an executor makes
(changelogs, snapshots, state directories) are counted for every executor, and those of the query
once.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from tidelog_bench.experiment import Cell, Experiment, Figure, Reading, Setting, Size, Trial
from tidelog_bench.spark.batches import BatchWindow, Counts, Sum, by_kind, dollars, per_batch
from tidelog_bench.spark.job import QUICK_JVM, RATIOS, STORES, TIDELOG, Job, missing

_PER_QUERY: Final = ("commits", "offsets", "roll-up", "segment", "other")
"""Classes of files that the query writes once, whatever number of executors it has: their small
changelogs are one segment of the driver, or lie in the commit."""
_MAINTENANCE_BATCHES: Final = 60
_QUICK_BATCHES: Final = 6


def cells(size: Size) -> Sequence[Cell]:
    """One short cell; the settings that people ask about; or all queries, partitions and latencies.
    Then the bill of 200 partitions on 10 executors.
    """
    if size is Size.QUICK:
        return [
            _cell("aggregation", 4, warm=2, batches=5, jvm=QUICK_JVM),
            _bill("aggregation", 2, _QUICK_BATCHES, 150, _QUICK_BATCHES, QUICK_JVM),
        ]
    if size is Size.STANDARD:
        return [
            _cell("aggregation", 64, warm=15, batches=6),
            _cell("aggregation", 200, warm=10, batches=2),
            _cell("join", 64, warm=20, batches=2),
            _cell("long_keys", 2, warm=8, batches=4),
            # Each store has then had a second snapshot, and has listed its directory to remove the
            # first, which it does once an hour: from here on every period of snapshots, 160
            # batches, asks for as much, and every maintenance.
            _bill("aggregation", 420, 480, 300),
        ]
    return [
        *(
            _cell(query, partitions, latency, warm=15, batches=20)
            for partitions in (8, 64, 200)
            for latency in (0, 30)
            for query in ("aggregation", "join")
        ),
        _cell("long_keys", 2, warm=15, batches=20),
        _bill("aggregation", 420, 480, 400),
        _bill("join", 420, 480, 1000),
    ]


_STARTS_S: Final = 7.0
_BATCH_S: Final = {"join": 0.075, "long_keys": 0.5}
"""A guess of a batch: seconds for each partition; of other queries a quarter of the first."""


def _cell(
    query: str, partitions: int, latency_ms: int = 30, *, warm: int, batches: int, jvm: str = ""
) -> Cell:
    settings: dict[str, Setting] = {
        "query": query,
        "partitions": partitions,
        "latency_ms": latency_ms,
        "mb_per_s": 50,
        "warm": warm,
        "batches": batches,
        "maintenance_ms": 60_000,  # Spark's default
        "jvm": jvm,
    }
    batch_s = partitions * _BATCH_S.get(query, 0.018)
    return Cell(settings, STORES, (1 + batches) * batch_s, _STARTS_S + warm * batch_s)


def _bill(
    query: str,
    warm: int,
    batches: int,
    trigger_ms: int,
    maintenance_batches: int = _MAINTENANCE_BATCHES,
    jvm: str = "",
) -> Cell:
    settings: dict[str, Setting] = {
        "query": query,
        "counted": True,
        "executors": 10,
        "partitions": 20,
        "latency_ms": 0,
        "mb_per_s": 0,
        "warm": warm,
        "batches": batches,
        # From the second maintenance on there are versions to be deleted: a hundred are kept.
        "warm_stock": min(warm, 3 * maintenance_batches),
        "batches_stock": min(batches, 2 * maintenance_batches),
        "trigger_ms": trigger_ms,
        "maintenance_ms": trigger_ms * maintenance_batches,
        "jvm": jvm,
    }
    batch_s = trigger_ms / 1e3
    return Cell(settings, STORES, (1 + batches) * batch_s, _STARTS_S + warm * batch_s)


def measure(trial: Trial) -> Reading:
    """A round of batches of a query that goes on between trials."""
    # It needs pyspark.
    from tidelog_bench.spark.application import kept  # noqa: PLC0415

    of: Any = trial.settings
    executors = of.get("executors")
    # In a cell with executors Spark's own store has batches of its own: it uploads a snapshot at
    # each maintenance, so it is in steady state sooner than the plug-in.
    stock = "_stock" if executors and trial.variant != TIDELOG else ""
    job, warm = trial.read(Job, store=trial.variant), of[f"warm{stock}"]
    query = kept(job, trial.kept, of["query"], warm)
    window = query.round(of[f"batches{stock}"])
    found = bill_of(window, executors) if executors else window.reading()
    return replace(found, notes={**found.notes, "versions": query.application.versions})


def bill_of(found: BatchWindow, executors: int) -> Reading:
    """Requests and dollars of a query on so many executors, from the batches of one."""
    batches, whole = len(found.progress), scaled(found.counts, executors)
    by_class = {
        file: round(dollars({key: of for key, of in whole.items() if key[1] == file}, batches), 2)
        for file in sorted({file for _, file in whole})
    }
    notes = {"requests_per_batch": by_kind(whole, batches), "dollars_by_class": by_class}
    return Reading(per_batch(whole, batches), notes)


def scaled(counts: Counts, executors: int) -> Counts:
    """Requests of the whole query from those of one executor and the driver."""
    return {
        (kind, file): found
        if file in _PER_QUERY
        else Sum(found.requests * executors, found.bytes * executors)
        for (kind, file), found in counts.items()
    }


EXPERIMENT: Final = Experiment(
    name="spark-commit",
    title="Batches of Spark queries by state store",
    question="What does making state durable add to a batch of a Spark query, and what do the "
    "requests of 200 partitions cost in a day at a batch a second?",
    group="spark",
    cells=cells,
    measure=measure,
    figures=(
        Figure("p50_ms", "median batch", "ms"),
        Figure("p99_ms", "99th percentile of batches", "ms"),
        Figure("p99_over_p50", "99th percentile over the median", ""),
        Figure("dollars_per_day", "requests of a day at a batch a second", "dollars"),
        Figure("commit_ms", "state commits, summed over tasks", "ms"),
        Figure("requests_per_batch", "requests per batch", "requests"),
        Figure("objects_per_batch", "objects written per batch", "objects"),
        Figure("uploaded_kb_per_batch", "uploaded per batch", "kB"),
        Figure("cpu_ms_per_batch", "processor time per batch", "ms"),
    ),
    ratios=RATIOS,
    missing=missing,
    also=("native/spark-state-store/src/main", "native/spark-benchmark/src/main"),
    resident=True,
)
