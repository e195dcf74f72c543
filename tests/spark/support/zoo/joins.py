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


QUERIES = [
    *(
        Query(f"{name}_format_{version}", _join(how), batches, expected, settings=state_format)
        for name, how, batches, expected in (
            ("inner_join", "inner", lambda: batches_of(21), _inner),
            ("left_outer_join", "left_outer", lambda: batches_of(23), _left_outer),
        )
        for version in FORMATS
        for state_format in [{FORMAT: str(version)}]
    ),
    Query("join_by_a_processor", _by_processor, lambda: batches_of(27), _inner),
]
