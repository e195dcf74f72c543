"""Reading a job's log with Spark, in three ways: the view, as Parquet, and row by row.

Invariant: all ways give the same rows: the changes of the operator that counts.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from tidelog.spark import TidelogDataSource
from tidelog_bench.embedded.meter import CLOCK

_COLUMNS: Final = "operator,subtask,seqno,op,key_group,state_id,key,value"


class RowByRow(DataSource):
    """The view `changes` with a Python tuple per row instead of Arrow batches."""

    @classmethod
    def name(cls) -> str:
        """For `format`."""
        return "tidelog_rows"

    def schema(self) -> Any:
        """As the view's."""
        return TidelogDataSource(self.options).schema()

    def reader(self, schema: Any) -> DataSourceReader:
        """Wraps the view's reader."""
        return _RowReader(TidelogDataSource(self.options).reader(schema))


class _RowReader(DataSourceReader):
    def __init__(self, reader: DataSourceReader) -> None:
        self._reader = reader

    def partitions(self) -> Any:
        return self._reader.partitions()

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        for batch in self._reader.read(partition):
            for row in cast(Any, batch).to_pylist():
                yield tuple(row.values())


def session(cores: int, directory: Path) -> SparkSession:
    """A local Spark with the sources registered."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master(f"local[{cores}]")
        .config("spark.driver.memory", "2g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.local.dir", str(directory / "local"))
        .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    register(spark)
    return spark


def register(spark: SparkSession) -> None:
    """Make the sources known to a session."""
    spark.dataSource.register(TidelogDataSource)
    spark.dataSource.register(RowByRow)


def source(spark: SparkSession, variant: str, store: Path, parquet: Path) -> DataFrame:
    """The rows in one of the ways; as Parquet they are written first if they are not there."""
    if variant == "parquet":
        if not parquet.exists():
            source(spark, "tidelog", store, parquet).write.parquet(str(parquet))
        return spark.read.parquet(str(parquet))
    name = {"tidelog": TidelogDataSource.name(), "rows": RowByRow.name()}[variant]
    options = {"view": "changes", "operator": "count", "columns": _COLUMNS}
    return spark.read.format(name).options(**options).load(str(store))


def read(frame: DataFrame) -> dict[str, float]:
    """Touch every key and value once; seconds, and what was there."""
    started = CLOCK.monotonic()
    row = frame.agg(
        F.count("*").alias("changes"),
        F.sum(F.length("key")).alias("keys"),
        F.sum(F.length("value")).alias("values"),
        F.sum("seqno").alias("seqnos"),
    ).head()
    assert row is not None
    seconds = CLOCK.monotonic() - started
    return {
        "seconds": seconds,
        "changes": row["changes"],
        "mb": ((row["keys"] or 0) + (row["values"] or 0)) / 1e6,
        "seqnos": row["seqnos"],
    }
