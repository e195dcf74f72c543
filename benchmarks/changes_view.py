"""Reading the log with Spark: view `changes` against the same rows as Parquet, and row by row.

    python -m benchmarks.changes_view
    python -m benchmarks.changes_view --records 4000000 --cores 2

A job leaves a log that no materialization has cut. In one Spark session three sources alternate,
each summed over: view `changes` in Arrow batches; the same rows written once as Parquet, which
knows nothing of logs; and the view handed to Spark row by row, as a plain Python source would.
Needs pyspark and Java.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from benchmarks.harness import records
from benchmarks.harness.pairs import Result, alternate, medians, ratios
from benchmarks.spark_options import about, show
from tidelog.bench.children import in_child
from tidelog.bench.embedded.run import RunSpec, measure, scratch
from tidelog.bench.embedded.workload import WORKLOADS
from tidelog.spark import TidelogDataSource

VARIANTS: Final = ("tidelog", "parquet", "rows")
SHOW: Final = ("seconds", "changes_per_s", "mb_per_s")
COLUMNS: Final = "operator,subtask,seqno,op,key_group,state_id,key,value"
NEVER_S: Final = 86_400.0


class RowByRow(DataSource):
    """The same view, with a Python tuple per row instead of Arrow batches."""

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
            for row in batch.to_pylist():
                yield tuple(row.values())


def fill(spec: RunSpec, store: Path) -> Any:
    """Run the word count once; its log stays."""
    return measure(spec, store=store)


def session(cores: int, directory: Path) -> SparkSession:
    """A local Spark with the sources registered."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master(f"local[{cores}]")
        .config("spark.driver.memory", "2g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.local.dir", str(directory / "local"))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    spark.dataSource.register(TidelogDataSource)
    spark.dataSource.register(RowByRow)
    return spark


def source(spark: SparkSession, variant: str, store: Path, parquet: Path) -> DataFrame:
    """One of the variants."""
    if variant == "parquet":
        return spark.read.parquet(str(parquet))
    name = {"tidelog": "tidelog", "rows": RowByRow.name()}[variant]
    options = {"view": "changes", "columns": COLUMNS}
    return spark.read.format(name).options(**options).load(str(store))


def read(frame: DataFrame) -> Result:
    """Touch every key and value once."""
    started = time.perf_counter()
    row = frame.agg(
        F.count("*").alias("changes"),
        F.sum(F.length("key")).alias("keys"),
        F.sum(F.length("value")).alias("values"),
        F.sum("seqno").alias("seqnos"),
    ).head()
    assert row is not None
    seconds = time.perf_counter() - started
    return {
        "seconds": round(seconds, 3),
        "changes": row.changes,
        "changes_per_s": round(row.changes / seconds),
        "mb_per_s": round(((row.keys or 0) + (row["values"] or 0)) / seconds / 1e6, 2),
        "seqnos": row.seqnos,
    }


def experiment(workload: str, count: int, cores: int, reps: int, *, record: bool) -> None:
    """Fill a store, write it as Parquet, alternate the variants."""
    spec = RunSpec(WORKLOADS[workload], records=count, warm_s=0, materialize_s=NEVER_S)
    with scratch() as directory:
        store, parquet = directory / "store", directory / "parquet"
        in_child(fill, spec, store)
        spark = session(cores, directory)
        source(spark, "tidelog", store, parquet).write.parquet(str(parquet))
        print(f"--- changes of {workload}, local[{cores}]", flush=True)

        def run(variant: str) -> Result:
            return read(source(spark, variant, store, parquet))

        warm = {variant: run(variant) for variant in VARIANTS}
        same = {(result["changes"], result["seqnos"]) for result in warm.values()}
        assert len(same) == 1, f"the variants read other rows: {warm}"
        runs = alternate(VARIANTS, reps, run, SHOW)
        spark.stop()
    result = {
        "changes": warm["tidelog"]["changes"],
        **{figure: medians(runs, figure) for figure in SHOW},
        "changes_per_s, tidelog / parquet": ratios(runs, "tidelog", "parquet", "changes_per_s"),
        "changes_per_s, tidelog / rows": ratios(runs, "tidelog", "rows", "changes_per_s"),
    }
    show(result)
    if record:
        settings = {"workload": workload, "records": count, "cores": cores} | about()
        records.append("changes_view", settings, {**result, "runs": runs})


def main() -> None:
    """One record."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = options.add_argument
    add("--workload", choices=sorted(WORKLOADS), default="16x50k")
    add("--records", type=int, default=2_000_000, help="that the job counts (2,000,000)")
    add("--cores", type=int, default=2, help="task threads (2)")
    add("--reps", type=int, default=5, help="the variants alternate within each (5)")
    add("--quick", action="store_true", help="200,000 records, once, no record kept")
    parsed = options.parse_args()
    count, reps = (200_000, 1) if parsed.quick else (parsed.records, parsed.reps)
    experiment(parsed.workload, count, parsed.cores, reps, record=not parsed.quick)


if __name__ == "__main__":
    main()
