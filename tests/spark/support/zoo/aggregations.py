"""Aggregations, distinct rows, a limit."""

from collections import defaultdict

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tests.spark.support.place import Row
from tests.spark.support.zoo.query import (
    Batch,
    Query,
    Sources,
    by_key,
    events,
    ordered,
    records,
    single,
    with_time,
)


def _totals(sources: Sources) -> DataFrame:
    return (
        sources.stream()
        .groupBy("k")
        .agg(F.count("*").alias("n"), F.sum("v").alias("sum"), F.max("v").alias("max"))
    )


def totals_of(batches: list[Batch]) -> dict[tuple[str, ...], Row]:
    values = defaultdict(list)
    for record in records(batches):
        values[record["k"]].append(record["v"])
    rows = [
        {"k": key, "n": len(found), "sum": sum(found), "max": max(found)}
        for key, found in values.items()
    ]
    return by_key(rows, "k")


def _clumsy_totals(sources: Sources) -> DataFrame:
    """The totals, by tasks of which some fail while they update the state, once each."""
    marks = sources.place.root / "failed"
    marks.mkdir(exist_ok=True)

    def stumble(key: str) -> str:
        mark = marks / key
        if key in ("k3", "k5", "k8") and not mark.exists():
            mark.touch()
            raise ValueError(f"this task fails once, at {key}")
        return key

    totals = _totals(sources)
    return totals.withColumn("k", F.udf(stumble)("k"))


def _distinct(sources: Sources) -> DataFrame:
    return sources.stream().select("k", "v").dropDuplicates(["k"]).select("k")


def _distinct_keys(batches: list[Batch]) -> list[Row]:
    return ordered([{"k": key} for key in {record["k"] for record in records(batches)}])


def _distinct_within(sources: Sources) -> DataFrame:
    return with_time(sources.stream(), delay_s=1000).dropDuplicatesWithinWatermark(["k"])[["k"]]


def _limited(sources: Sources) -> DataFrame:
    return sources.stream().select(F.lit("row").alias("row")).limit(100)


def _only_hundred(batches: list[Batch]) -> list[Row]:
    return [{"row": "row"} for _ in records(batches)][:100]


TOTALS = Query(
    "totals", _totals, lambda: single(events(seed=1)), totals_of, mode="update", key=("k",)
)
QUERIES = [
    TOTALS,
    Query(
        "clumsy_totals", _clumsy_totals, lambda: single(events(seed=6)), totals_of, "update", ("k",)
    ),
    Query("distinct", _distinct, lambda: single(events(seed=3)), _distinct_keys),
    Query(
        "distinct_within_watermark",
        _distinct_within,
        lambda: single(events(seed=3)),
        _distinct_keys,
    ),
    Query("limit", _limited, lambda: single(events(seed=5)), _only_hundred),
]
