"""The totals of the query zoo by a batch aggregation of its input."""

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidelog.verify.expected.function import Request


def totals(asked: "Request") -> "DataFrame":
    from pyspark.sql import functions as f  # noqa: PLC0415

    assert asked.spark is not None and asked.positions["0"]["logOffset"] >= 0
    records = asked.spark.read.schema("k string, t long, v long").json(os.environ["TOTALS_INPUT"])
    return records.groupBy("k").agg(f.struct(f.count("*"), f.sum("v"), f.max("v")))


def half_of_them(asked: "Request") -> "DataFrame":
    return totals(asked).where("k < 'k5'")
