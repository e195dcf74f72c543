"""The stages of a job as data frames: rows of Spark that carry buffers of records.

Invariants: a row of a stage is of a branch and a key group, and has either a buffer of records or
a mark, of which each key group of the branch gets the same. Spark knows nothing of event time: so
it drops nothing, and any operator may follow any other one.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import pyarrow as pa

from tidelog.runtime.node import Node
from tidelog.spark.job.plan import JobPlan
from tidelog.spark.operators.group import GroupOperator, OperatorPlan
from tidelog.spark.operators.layout import (
    GROUP,
    ROWS,
    TIME_MODES,
    Descriptions,
    InitialState,
    Row,
    pack,
)
from tidelog.spark.operators.records import BRANCH, DATA, LATE, TIMES
from tidelog.spark.operators.stage import Output, Stage, StagePlan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NOW: Final = "tidelog_now"
OUTPUT_SCHEMA: Final = f"{BRANCH} int, {GROUP} int, {DATA} binary, {TIMES} binary, {LATE} int"
_SCHEMA: Final = pa.schema(
    [
        (BRANCH, pa.int32()),
        (GROUP, pa.int32()),
        (DATA, pa.binary()),
        (TIMES, pa.binary()),
        (LATE, pa.int32()),
    ]
)
LATE_RECORDS: Final = "late_records"
"""The name of the figure in Spark's progress, before a colon and the name of the operator."""
_OUTPUT_BYTES: Final = 4 << 20
_INITIAL_BYTES: Final = 256 << 10


class SourceReader(Protocol):
    """Makes records of what Spark has of a source; travels to executors."""

    @property
    def ended(self) -> Collection[str] | None:
        """The splits that are read to their end; None: all, as each is in one batch alone."""

    def read(self, batch: pa.RecordBatch) -> Iterator[tuple[str, list[Any]]]:
        """Splits and records of theirs."""


class SourceFrame(NamedTuple):
    """A source as Spark reads it."""

    frame: "DataFrame"
    reader: SourceReader
    splits: Mapping[str, int | None] = {}
    """Splits that event time waits for, and the greatest event time that was read there."""


class SourcePass:
    """The function of `mapInArrow` for the stage of a source."""

    def __init__(self, reader: SourceReader, plan: StagePlan) -> None:
        self._reader = reader
        self._plan = plan

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        stage = Stage(self._plan, self._plan.head)
        try:
            yield from _arrow(self._outputs(stage, batches))
        finally:
            stage.close()

    def _outputs(self, stage: Stage, batches: Iterable[pa.RecordBatch]) -> Iterator[Output]:
        current: str | None = None
        for batch in batches:
            for split, records in self._reader.read(batch):
                if split != current:
                    yield from stage.flush()
                    stage.read_from(split)
                    current = split
                yield from stage.read(records)
        yield from stage.flush()
        yield from stage.marks(self._reader.ended)


class Frames:
    """Makes the data frames of a plan."""

    def __init__(
        self,
        plan: JobPlan,
        sources: Mapping[str, SourceFrame],
        descriptions: Descriptions,
        initial: Mapping[str, InitialState],
    ) -> None:
        self._plan = plan
        self._sources = sources
        self._descriptions = descriptions
        self._initial = initial
        self._observed: set[str] = set()

    def output(self) -> "DataFrame":
        """What leaves the query, as rows of `OUTPUT_SCHEMA`."""
        frames = [self._stage(head, [None]) for head in self._plan.outputs()]
        return reduce(lambda one, other: one.unionByName(other), frames)

    def _stage(self, head: Node, targets: list[Node | None]) -> "DataFrame":
        plan = self._plan.stage(head, targets, self._descriptions)
        if head.source is not None:
            source = self._sources[head.id]
            return source.frame.mapInArrow(SourcePass(source.reader, plan), OUTPUT_SCHEMA)
        return self._operator(head, plan)

    def _operator(self, node: Node, stage: StagePlan) -> "DataFrame":
        from pyspark.sql import functions as f  # noqa: PLC0415  (heavy)

        assert node.operator is not None
        inputs: dict[int, Node] = {id(head): head for head, _, _ in self._plan.inputs(node)}
        frames = [self._input(head, node) for head in inputs.values()]
        rows = reduce(lambda one, other: one.unionByName(other), frames)
        # The time of the batch: the same when Spark repeats it.
        rows = rows.withColumn(NOW, f.unix_millis(f.current_timestamp()))
        plan = OperatorPlan(
            node.operator,
            self._descriptions[node.id],
            self._plan.ticks(node),
            self._plan.time_inputs(node, self._sources),
            stage,
            key_types=node.key_types,
            value_types=node.value_types,
        )
        initial = self._initial.get(node.id)
        operator: Any = GroupOperator(plan)  # Spark asks for the methods alone
        output = rows.groupBy(GROUP).transformWithState(
            operator,
            OUTPUT_SCHEMA,
            "Append",
            TIME_MODES[plan.clock],
            None if initial is None else initial_rows(initial.rows).groupBy(GROUP),
        )
        if not plan.inputs or node.id in self._observed:
            return output
        self._observed.add(node.id)
        late = f.coalesce(f.sum(LATE), f.lit(0)).alias(LATE_RECORDS)
        return output.observe(f"{LATE_RECORDS}:{node.id}", late)

    def _input(self, head: Node, node: Node) -> "DataFrame":
        """The records that an operator gets of a stage."""
        from pyspark.sql import functions as f  # noqa: PLC0415  (heavy)

        numbers = [number for other, _, number in self._plan.inputs(node) if other is head]
        return self._stage(head, [node]).where(f.col(BRANCH).isin(numbers))


def initial_rows(rows: "DataFrame") -> "DataFrame":
    """Rows of an operator (`layout.INITIAL_COLUMNS`) as Spark hands them over: of each key group
    in few rows, packed.
    """
    ordered = rows.repartition("key_group").sortWithinPartitions("key_group", "state_id", "key")
    return ordered.mapInArrow(packed_rows, f"{GROUP} int, {ROWS} binary")


def packed_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Ordered rows, those of a key group in few rows."""
    group, rows, size = -1, list[Row](), 0
    for batch in batches:
        columns = [batch.column(name).to_pylist() for name in ("key_group", "state_id", "key")]
        for number, state, key, value in zip(
            *columns, batch.column("value").to_pylist(), strict=True
        ):
            if rows and (number != group or size >= _INITIAL_BYTES):
                yield _packed_row(group, rows)
                rows, size = [], 0
            group = number
            rows.append((state.to_bytes(2, "big") + key, value))
            size += len(key) + len(value)
    if rows:
        yield _packed_row(group, rows)


def _packed_row(group: int, rows: list[Row]) -> pa.RecordBatch:
    arrays = [pa.array([group], pa.int32()), pa.array([pack(rows)], pa.binary())]
    return pa.RecordBatch.from_arrays(arrays, names=[GROUP, ROWS])


def _arrow(outputs: Iterable[Output]) -> Iterator[pa.RecordBatch]:
    waiting, size = list[Output](), 0
    for output in outputs:
        waiting.append(output)
        size += len(output.data or b"")
        if size >= _OUTPUT_BYTES:
            yield _batch(waiting)
            waiting, size = [], 0
    if waiting:
        yield _batch(waiting)


def _batch(outputs: list[Output]) -> pa.RecordBatch:
    columns = zip(zip(*outputs, strict=True), _SCHEMA, strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(values, field.type) for values, field in columns], schema=_SCHEMA
    )
