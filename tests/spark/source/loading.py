"""Loads of the data source in a real Spark, and their rows as the reader without one has them."""

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Row = dict[str, Any]


def load(spark: "SparkSession", location: Path, **options: object) -> "DataFrame":
    """A batch load."""
    reader = spark.read.format("tidelog")
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load(str(location))


def rows(frame: "DataFrame") -> list[Row]:
    """What a frame holds."""
    return [plain(row.asDict()) for row in frame.collect()]


def plain(row: Row) -> Row:
    """Values that compare alike, whoever has read them: bytes, and times as seconds since 1970."""
    return {name: _plain(value) for name, value in row.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, bytearray):
        return bytes(value)
    return value.timestamp() if isinstance(value, datetime) else value
