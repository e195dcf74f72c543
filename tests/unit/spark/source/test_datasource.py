"""What Spark calls, without Spark: readers are small and read what they have planned."""

import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from tests.support.cli import lay_out
from tests.support.jobs import filled
from tests.unit.spark.source.reading import bag, read, request
from tidelog.errors import ConfigError
from tidelog.spark import TidelogDataSource

TYPES: dict[str, DataType] = {
    "bigint": LongType(),
    "int": IntegerType(),
    "string": StringType(),
    "binary": BinaryType(),
}


def source(location: Path, **options: str) -> TidelogDataSource:
    return TidelogDataSource({"path": str(location), **options})


def struct(source: TidelogDataSource) -> StructType:
    """The schema as Spark gives it back to the source."""
    fields = (field.split(" ") for field in source.schema().split(", "))
    return StructType([StructField(name, TYPES[kind]) for name, kind in fields])


def test_neither_the_package_nor_its_pure_parts_import_spark_or_arrow() -> None:
    script = (
        "import sys, tidelog.spark\n"
        "import tidelog.spark.source.options, tidelog.spark.source.planning\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    loaded = set(done.stdout.decode().split())
    assert not loaded & {"pyspark", "pyarrow", "pandas", "numpy", "obstore", "botocore"}


def test_a_reader_reads_what_it_has_planned(tmp_path: Path) -> None:
    location = lay_out(tmp_path, filled())
    made = source(location, view="changes")
    reader = pickle.loads(pickle.dumps(made.reader(struct(made))))
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    assert bag(row for batch in batches for row in batch.to_pylist()) == bag(
        read(location, view="changes")
    )


def test_an_empty_plan_is_a_partition_without_rows(tmp_path: Path) -> None:
    made = source(lay_out(tmp_path, filled()), view="changes", operator="nothing")
    reader = made.reader(struct(made))
    (partition,) = reader.partitions()
    assert list(reader.read(partition)) == []


def test_a_stream_is_refused_with_what_to_do_instead(tmp_path: Path) -> None:
    made = source(lay_out(tmp_path, filled()), view="changes")
    with pytest.raises(ConfigError, match=r"readStream .*view changes.*read in batches.*--follow"):
        made.streamReader(struct(made))


def test_the_request_of_a_load_is_small(tmp_path: Path) -> None:
    assert len(pickle.dumps(request(tmp_path))) < 4096
