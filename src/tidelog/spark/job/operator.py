"""Part of a job's graph over any data frames."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidelog.errors import ConfigError
from tidelog.runtime.graph import Job
from tidelog.spark.handover.begin import Beginning
from tidelog.spark.handover.document import QueryDirectory
from tidelog.spark.handover.sources import QuerySources
from tidelog.spark.job.descriptions import KEY_GROUPS, describe
from tidelog.spark.job.frames import Frames, SourceFrame
from tidelog.spark.job.plan import JobPlan
from tidelog.spark.operators.records import DATA, decode_records_of
from tidelog.spark.processor.adapter import TypeNames, nested, shape_of
from tidelog.spark.processor.transform import check_modules, parsed_schema
from tidelog.state.objects.classes import RecordTypes
from tidelog.state.schema.row import Row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


def operator_frame(
    df: "DataFrame | Mapping[str, DataFrame]",
    job: Job,
    name: str,
    *,
    output_schema: "StructType | str",
    directory: QueryDirectory,
    beginning: Beginning | None,
) -> "DataFrame":
    """The data frame of `tidelog.spark.run_operator`, whose operators have begun with a job's."""
    check_modules()
    plan = JobPlan(job, name)
    sources = {node.id: _source(df, node.id) for node in plan.sources}
    session = next(iter(sources.values())).frame.sparkSession
    initial = {} if beginning is None else beginning.initial(session)
    descriptions = describe(plan.operators, directory.descriptions(), initial)
    key_groups = max((one.key_groups for one in descriptions.values()), default=KEY_GROUPS)
    directory.begin(QuerySources(job.name, key_groups, frames=tuple(sources)))
    directory.keep_descriptions(descriptions)
    schema = parsed_schema(output_schema)
    output = Frames(plan, sources, descriptions, initial).output()
    return output.mapInArrow(_Decoded(job.record_types, shape_of(schema), schema), schema)


def _source(df: "DataFrame | Mapping[str, DataFrame]", name: str) -> SourceFrame:
    frame = df.get(name) if isinstance(df, Mapping) else df
    if frame is None:
        raise ConfigError(
            f"source {name!r} of the job",
            expected="a data frame of that name",
            found="none",
            action="pass df={'" + name + "': ..., ...}",
        )
    return SourceFrame(frame, RowReader(tuple(frame.columns)))


class RowReader:
    """Makes records of the rows of any data frame."""

    ended = None

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = columns

    def read(self, batch: pa.RecordBatch) -> Iterator[tuple[str, list[Any]]]:
        """All rows, of a split that is Spark's partition."""
        from pyspark import TaskContext  # noqa: PLC0415  (heavy)

        context = TaskContext.get()
        columns = [map(nested, batch.column(name).to_pylist()) for name in self._columns]
        rows = [Row.of(self._columns, values) for values in zip(*columns, strict=True)]
        yield str(context.partitionId() if context else 0), rows


class _Decoded:
    """The function of `mapInArrow` that gives records as columns."""

    def __init__(self, types: tuple[type, ...], shape: TypeNames, schema: "StructType") -> None:
        self._types = types
        self._shape = shape
        self._schema = schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415  (heavy)

        types, schema = RecordTypes(self._types), to_arrow_schema(self._schema)
        for batch in batches:
            for data in batch.column(DATA).to_pylist():
                if data is None:
                    continue
                rows = [self._fields(record) for record in decode_records_of(data, types)]
                yield pa.RecordBatch.from_pylist(rows, schema=schema)

    def _fields(self, record: Any) -> dict[str, Any]:
        row = record if isinstance(record, tuple | Mapping) else (record,)
        fields: dict[str, Any] = self._shape.fit(row).asDict(recursive=True)
        return fields
