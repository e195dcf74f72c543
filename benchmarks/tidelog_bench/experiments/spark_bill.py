"""What the requests of a Spark query on many executors cost in a day.

Invariant: only counts of requests are read, never durations; what an executor does and what the
query does once are scaled apart.

One executor's share of the partitions is run with a fixed trigger, and with a maintenance interval
of sixty batches, as many as Spark's default minute has at a batch a second (in a quick session of
six). Of its requests

    executor  changelogs, segments, snapshots, state directories: as many for every executor
    query     commits, offsets, roll-ups of the index, the rest: once
"""

import dataclasses
from collections.abc import Sequence
from typing import Final

from tidelog_bench.experiment import Bars, Experiment, Figure
from tidelog_bench.measurement import Cell, Measurement, Reading, Setting, Size, Trial
from tidelog_bench.spark.batch_window import PUT, dollars
from tidelog_bench.spark.counts import Counts, Sum, by_kind, requests
from tidelog_bench.spark.prerequisites import missing
from tidelog_bench.spark.stores import (
    CHANGELOG_STORE,
    QUICK_JVM,
    RATIOS,
    STORES,
    TIDELOG,
)

_PER_QUERY: Final = ("commits", "offsets", "roll-up", "other")
_MAINTENANCE_BATCHES: Final = 60
_QUICK_BATCHES: Final = 6


def cells(size: Size) -> Sequence[Cell]:
    """200 partitions on 10 executors."""
    if size is Size.QUICK:
        small = _cell(
            "aggregation",
            warm=2,
            batches=_QUICK_BATCHES,
            trigger_ms=150,
            maintenance_batches=_QUICK_BATCHES,
            jvm=QUICK_JVM,
        )
        return [dataclasses.replace(small, variants=(CHANGELOG_STORE, TIDELOG))]
    if size is Size.STANDARD:
        # One maintenance is in the middle of what is counted: as often as on average.
        return [_cell("aggregation", warm=30, batches=60, trigger_ms=250)]
    return [
        _cell(query, warm=120, batches=180, trigger_ms=trigger_ms)
        for query, trigger_ms in (("aggregation", 400), ("join", 1000))
    ]


def _cell(
    query: str,
    *,
    warm: int,
    batches: int,
    trigger_ms: int,
    maintenance_batches: int = _MAINTENANCE_BATCHES,
    jvm: str = "",
) -> Cell:
    settings: dict[str, Setting] = {
        "query": query,
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
    return Cell(settings, STORES, starts_s + (warm + batches) * trigger_ms / 1e3)


def measure(trial: Trial) -> Reading:
    """Run one executor's share; scale its requests."""
    # These need pyspark.
    from tidelog_bench.spark.application import Batches, application  # noqa: PLC0415
    from tidelog_bench.spark.job import Job  # noqa: PLC0415

    query, executors = str(trial.settings["query"]), int(trial.settings["executors"] or 1)
    with application(
        trial.read(Job, store=trial.variant), trial.directory / "application"
    ) as running:
        found = trial.read(Batches).measure(running, query, trial.directory / query)
    batches = len(found.progress)
    whole = scaled(found.counts, executors)
    figures = {
        "dollars_per_day": round(dollars(whole, batches), 2),
        "requests_per_batch": round(requests(whole) / batches, 3),
        "objects_per_batch": round(requests(whole, PUT) / batches, 3),
    }
    notes = {
        "requests_per_batch": by_kind(whole, batches),
        "dollars_by_class": by_class(whole, batches),
        "of_one_executor": by_kind(found.counts, batches),
        "versions": running.versions,
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


def by_class(counts: Counts, batches: int) -> dict[str, float]:
    """Dollars in a day by class of file."""
    files = sorted({file for _, file in counts})
    return {
        file: round(
            dollars({key: found for key, found in counts.items() if key[1] == file}, batches), 2
        )
        for file in files
    }


MEASUREMENT: Final = Measurement("spark-bill", cells, measure, missing, shares_jvm=True)

EXPERIMENTS: Final = (
    Experiment(
        name="spark-bill",
        title="The bill of a Spark query on ten executors",
        question="What do the requests of 200 partitions cost in a day at a batch a second?",
        group="more",
        measurement=MEASUREMENT,
        figures=(
            Figure("dollars_per_day", "requests of a day at a batch a second", "dollars"),
            Figure("requests_per_batch", "requests per batch", "requests"),
            Figure("objects_per_batch", "objects written per batch", "objects"),
        ),
        ratios=RATIOS,
        plots=(Bars("dollars_per_day", "requests of a day, in dollars", log=True),),
    ),
)
