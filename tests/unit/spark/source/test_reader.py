"""What Spark calls, without Spark: readers are small, lazy, and ask a store only now and then."""

import asyncio
import json
import pickle
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from pyspark.sql.datasource import DataSourceReader
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
from tests.support.clock import VirtualClock
from tests.support.damage import checkpoint_in
from tests.support.jobs import filled
from tests.unit.spark.source.reading import bag, read, request
from tidelog.checkpoint.manifest import encode_entry
from tidelog.ids import Slot
from tidelog.spark import TidelogDataSource
from tidelog.spark.source.options import read_options
from tidelog.spark.source.parts import Request
from tidelog.spark.source.stream import StreamReader
from tidelog.spark.source.views import VIEWS
from tidelog.storage import object_names

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


def streaming(location: Path, clock: VirtualClock | None = None, **options: str) -> StreamReader:
    read = read_options({"path": str(location), **options}, streaming=True)
    return StreamReader(Request(read, VIEWS["changes"].columns, read.wanted), clock)


def test_neither_the_package_nor_its_pure_parts_import_spark_or_arrow() -> None:
    script = (
        "import sys, tidelog.spark\n"
        "import tidelog.spark.source.options, tidelog.spark.source.planning\n"
        "import tidelog.spark.source.offsets\n"
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


def test_a_reader_takes_filters_only_if_it_is_told_to(tmp_path: Path) -> None:
    location = lay_out(tmp_path, filled())
    plain, narrowing = (
        source(location, pushdown=flag).reader(struct(source(location)))
        for flag in ("false", "true")
    )
    assert plain.pushFilters.__func__ is DataSourceReader.pushFilters
    assert narrowing.pushFilters.__func__ is not DataSourceReader.pushFilters


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


def pass_until(clock: VirtualClock, seconds: float) -> None:
    asyncio.run(clock.advance(seconds - clock.monotonic()))


def test_a_store_is_asked_once_per_poll_interval(tmp_path: Path, clock: VirtualClock) -> None:
    newest = object_names.checkpoint(Slot(9))
    location = lay_out(tmp_path, {n: d for n, d in filled().items() if n != newest})
    reader = streaming(location, clock, pollInterval="2s")
    assert reader.latestOffset()["slot"] == 8
    lay_out(location, {newest: filled()[newest]})
    pass_until(clock, 1.9)
    assert reader.latestOffset()["slot"] == 8
    pass_until(clock, 2.0)
    assert reader.latestOffset()["slot"] == 9


def test_a_checkpoint_without_changes_is_no_new_offset(tmp_path: Path, clock: VirtualClock) -> None:
    location = lay_out(tmp_path, filled())
    reader = streaming(location, clock)
    first = reader.latestOffset()
    again = msgspec.structs.replace(checkpoint_in(filled(), 9), slot=Slot(10))
    lay_out(location, {object_names.checkpoint(Slot(10)): encode_entry(again)})
    pass_until(clock, 5.0)
    assert reader.latestOffset() == first
    restarted = streaming(location)
    assert restarted.latestOffset(json.loads(json.dumps(first)), None) == first
    assert streaming(location).latestOffset()["slot"] == 10


def test_reading_what_is_available_stops_there(tmp_path: Path, clock: VirtualClock) -> None:
    newest = object_names.checkpoint(Slot(9))
    location = lay_out(tmp_path, {n: d for n, d in filled().items() if n != newest})
    reader = streaming(location, clock)
    reader.prepareForTriggerAvailableNow()
    lay_out(location, {newest: filled()[newest]})
    pass_until(clock, 5.0)
    reached = reader.latestOffset(reader.initialOffset(), None)
    assert reached["slot"] == 8
    assert reader.latestOffset(reached, None) == reached


def test_a_stream_can_share_parts_between_small_objects(tmp_path: Path) -> None:
    location = lay_out(tmp_path, filled())
    apart, together = (streaming(location, partitionBytes=size) for size in ("0", "1g"))
    offsets = apart.initialOffset(), apart.latestOffset()
    assert len(apart.partitions(*offsets)) > len(together.partitions(*offsets)) == 1


def test_the_request_of_a_load_is_small(tmp_path: Path) -> None:
    assert len(pickle.dumps(request(tmp_path))) < 4096
