"""Stream-stream joins in every format of their state."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tests.spark.support.place import Row
from tests.spark.support.zoo.query import (
    APART_S,
    END,
    LATE,
    Batch,
    Query,
    Sources,
    events,
    ordered,
    records,
    with_time,
)

FORMATS = (2, 3, 4)
FORMAT = "spark.sql.streaming.join.stateFormatVersion"


def _sides(sources: Sources) -> tuple[DataFrame, DataFrame]:
    left = with_time(sources.stream("left")).withColumnsRenamed({"v": "lv", "ts": "lts"})
    right = with_time(sources.stream("right"))
    return left, right.select(
        F.col("k").alias("rk"), F.col("v").alias("rv"), F.col("ts").alias("rts")
    )


def _join(how: str):  # type: ignore[no-untyped-def]
    def build(sources: Sources) -> DataFrame:
        left, right = _sides(sources)
        near = F.expr(
            f"k = rk and rts between lts - interval {APART_S} seconds"
            f" and lts + interval {APART_S} seconds"
        )
        return left.join(right, near, how).select("k", "t", "lv", "rv")

    return build


def _by_processor(sources: Sources) -> DataFrame:
    # Sparks of other interpreters have no tidelog, and do not run this query.
    from tests.spark.support.zoo.pairs import OUTPUT, Pairs  # noqa: PLC0415
    from tidelog.spark import transform  # noqa: PLC0415

    left, right = (
        sources.stream(side).select("k", "t", "v", F.lit(side).alias("side"))
        for side in ("left", "right")
    )
    return transform(left.unionByName(right), Pairs, key="k", output_schema=OUTPUT)


def batches_of(seed: int, number: int = 9) -> list[Batch]:
    """Input of a join: so many batches and those that end it."""
    left = events(seed, batches=number, per_batch=15, ends=True)
    right = events(seed + 1, batches=number, per_batch=15, ends=True)
    # A late row of an outer join's left side would be emitted or not with the side's watermark.
    return [
        {"left": [row for row in one if row["k"] != LATE], "right": other}
        for one, other in zip(left, right, strict=True)
    ]


def _joined(batches: list[Batch], outer: bool) -> list[Row]:
    right = records(batches, "right")
    rows = []
    for row in records(batches, "left"):
        matches = [
            other
            for other in right
            if other["k"] == row["k"] and abs(other["t"] - row["t"]) <= APART_S
        ]
        values = [other["v"] for other in matches] or ([None] if outer else [])
        rows += [{"k": row["k"], "t": row["t"], "lv": row["v"], "rv": value} for value in values]
    return ordered([row for row in rows if row["k"] != END])


def _inner(batches: list[Batch]) -> list[Row]:
    return _joined(batches, outer=False)


def _left_outer(batches: list[Batch]) -> list[Row]:
    return _joined(batches, outer=True)


def _then_counted(sources: Sources) -> DataFrame:
    left, right = _sides(sources)
    joined = left.join(right, F.expr("k = rk and lts = rts"))
    return (
        joined.groupBy(F.window("lts", "10 seconds").alias("w"), "k")
        .agg(F.count("*").alias("n"))
        .select(F.col("w.start").cast("long").alias("start"), "k", "n")
    )


def _counted(batches: list[Batch]) -> list[Row]:
    right = records(batches, "right")
    n: dict[tuple[int, str], int] = {}
    for row in records(batches, "left"):
        same = sum(other["k"] == row["k"] and other["t"] == row["t"] for other in right)
        if same:
            at = (row["t"] // 10 * 10, row["k"])
            n[at] = n.get(at, 0) + same
    return ordered([{"start": start, "k": key, "n": count} for (start, key), count in n.items()])


QUERIES = [
    *(
        Query(
            f"inner_join_format_{version}",
            _join("inner"),
            lambda: batches_of(21),
            _inner,
            settings={FORMAT: str(version)},
        )
        for version in FORMATS
    ),
    *(
        Query(
            f"left_outer_join_format_{version}",
            _join("left_outer"),
            lambda: batches_of(23),
            _left_outer,
            settings={FORMAT: str(version)},
        )
        for version in FORMATS
    ),
    Query("join_by_a_processor", _by_processor, lambda: batches_of(27), _inner),
    Query("join_then_windows", _then_counted, lambda: batches_of(25), _counted),
]
