"""A query without Spark: the functions that its executors run, called in Spark's order.

A batch has the records of all sources; then each keyed operator gets its rows by key group and its
expired timers, operators in the order of the graph.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa
from msgspec.structs import replace

from tidelog import Job
from tidelog.runtime.node import Node
from tidelog.spark.job.descriptions import describe
from tidelog.spark.job.frames import SourcePass, packed_rows
from tidelog.spark.job.plan import JobPlan
from tidelog.spark.operators.group import GroupOperator, OperatorPlan, Pages
from tidelog.spark.operators.layout import GROUP, OperatorDescription, pages_name, state_name
from tidelog.spark.operators.pages import PagedTable, Tree
from tidelog.spark.operators.records import BRANCH, DATA, LATE, decode_records_of
from tidelog.state.objects.classes import RecordTypes

Values = dict[str, Any]


class _Value:
    def __init__(self) -> None:
        self.of_key: dict[Any, Any] = {}
        self.key: Any = None

    def get(self) -> Any:
        return self.of_key.get(self.key)

    def update(self, value: Any) -> None:
        self.of_key[self.key] = tuple(value)

    def clear(self) -> None:
        self.of_key.pop(self.key, None)


class _Map(_Value):
    def getValue(self, key: Any) -> Any:
        return self.of_key[self.key, key]

    def updateValue(self, key: Any, value: Any) -> None:
        self.of_key[self.key, key] = value

    def removeKey(self, key: Any) -> None:
        del self.of_key[self.key, key]


class Handle:
    """pyspark's handle, with states and timers that stay from batch to batch."""

    def __init__(self) -> None:
        self.states: dict[str, Any] = {}
        self.timers: set[tuple[int, Any]] = set()
        self.key: Any = None

    def use(self, key: Any) -> None:
        self.key = key
        for state in self.states.values():
            state.key = key

    def getValueState(self, name: str, schema: str) -> Any:
        return self.states.setdefault(name, _Value())

    def getMapState(self, name: str, keys: str, values: str) -> Any:
        return self.states.setdefault(name, _Map())

    def registerTimer(self, time: int) -> None:
        self.timers.add((time, self.key))

    def deleteTimer(self, time: int) -> None:
        self.timers.discard((time, self.key))


class _Times:
    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms

    def getCurrentProcessingTimeInMs(self) -> int:
        return self.now_ms


class _Expired:
    def __init__(self, time: int) -> None:
        self._time = time

    def getExpiryTimeInMs(self) -> int:
        return self._time


class _InputRow:
    def __init__(self, values: Values, now_ms: int) -> None:
        self.tidelog_now = now_ms
        self._values = values

    def __getitem__(self, name: str) -> Any:
        return self._values[name]


Splits = dict[str, list[list[Any]]]
"""The records of each split, as they are read."""


class _Records:
    """A reader of records that are there."""

    def __init__(self, splits: Splits, ended: Collection[str] | None) -> None:
        self._splits = splits
        self.ended = ended

    def read(self, batch: pa.RecordBatch) -> Iterator[tuple[str, list[Any]]]:
        for split, reads in self._splits.items():
            for records in reads:
                yield split, records


class _Known(NamedTuple):
    splits: Mapping[str, int | None]


class State(NamedTuple):
    """State of an operator that a query begins with."""

    description: OperatorDescription
    rows: pa.RecordBatch


_ROWS = pa.schema(
    [
        ("key_group", pa.int32()),
        ("state_id", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
    ]
)


class _Handed(NamedTuple):
    tidelog_group: int
    tidelog_rows: bytes


def _handed_over(rows: pa.RecordBatch) -> list[_Handed]:
    ordered = rows.sort_by([(name, "ascending") for name in _ROWS.names[:3]])
    packed = [batch.to_pylist() for batch in packed_rows((ordered,))]
    return [_Handed(row[GROUP], row["tidelog_rows"]) for batch in packed for row in batch]


class Simulation:
    """A job's query; `records` are those of its sinks, by branch."""

    def __init__(
        self,
        job: Job,
        initial: Mapping[str, State] | None = None,
        partitions: Mapping[str, Mapping[str, int | None]] | None = None,
    ) -> None:
        """`partitions` are the splits of sources that have endless ones; others read files."""
        self.plan = JobPlan(job)
        self._partitions = dict(partitions or {})
        self._known = {name: _Known(splits) for name, splits in self._partitions.items()}
        self._initial = dict(initial or {})
        begun: Any = self._initial  # of another type of rows
        self.descriptions = describe(self.plan.operators, {}, begun)
        self.handles = {node.id: Handle() for node in self.plan.operators}
        self.records: dict[int, list[Any]] = defaultdict(list)
        self.ended: set[str] = set()
        """Endless splits that end with the next batch after all."""
        self.late: dict[str, int] = defaultdict(int)
        """Late records by operator."""
        self.now_ms = 1_000_000
        self._types = RecordTypes(job.record_types)

    def batch(self, **sources: "list[Any] | Splits") -> None:
        """A batch of records by the names of the sources, of one split or several."""
        self._batch(
            {
                name: records if isinstance(records, dict) else {"split": [records]}
                for name, records in sources.items()
            }
        )

    def state(self, name: str) -> State:
        """All rows of an operator, as a savepoint has them."""
        handle = self.handles[name]
        found: list[Values] = []
        watermark, seqno = None, 0
        pages = handle.states[pages_name(name)]
        for group, value in handle.states[state_name(name)].of_key.items():
            watermark, _, number, *tree, _, _ = value
            seqno = max(seqno, number)
            handle.use(group)
            prefix = group.to_bytes(2, "big")
            for key, data in PagedTable(prefix, Tree(*tree), Pages(pages)).scan(b"", None):
                state = int.from_bytes(key[2:4], "big")
                found.append(dict(zip(_ROWS.names, (group, state, key[4:], data), strict=True)))
        rows = pa.RecordBatch.from_pylist(found, _ROWS)
        description = replace(self.descriptions[name], watermark=watermark, seqno=seqno)
        return State(description, rows)

    def _batch(self, sources: dict[str, Splits]) -> None:
        self.now_ms += 1_000
        rows: dict[int, list[Values]] = defaultdict(list)
        everyone = [*self.plan.operators, None]
        for node in self.plan.sources:
            plan = self.plan.stage(node, everyone, self.descriptions)
            # A task reads each split, and none knows of the others.
            for split, reads in sources.get(node.id, {}).items():
                ended = self.ended & {split} if node.id in self._partitions else None
                reader = _Records({split: reads}, ended)
                for row in SourcePass(reader, plan)([None] if any(reads) or ended else []):
                    for values in row.to_pylist():
                        rows[values[BRANCH]].append(values)
        for node in self.plan.operators:
            self._operator(node, rows)
        outputs = [branch for sink in self.plan.sinks for branch in self.plan.branches_of(sink)]
        for branch in outputs:
            for row in rows.pop(branch, []):
                self.records[branch] += decode_records_of(row[DATA], self._types)

    def _operator(self, node: Node, rows: dict[int, list[Values]]) -> None:
        inputs = self.plan.inputs(node)
        assert node.operator is not None
        operator = GroupOperator(
            OperatorPlan(
                node.operator,
                self.descriptions[node.id],
                self.plan.ticks(node),
                self.plan.time_inputs(node, self._known),
                self.plan.stage(node, [*self.plan.operators, None], self.descriptions),
                node.key_types,
                node.value_types,
            )
        )
        handle, times = self.handles[node.id], _Times(self.now_ms)
        handle.use(None)
        operator.init(handle)
        if node.id in self._initial:
            for row in _handed_over(self._initial.pop(node.id).rows):
                handle.use(row.tidelog_group)
                operator.handleInitialState((row.tidelog_group,), row, times)
        by_group: dict[int, list[_InputRow]] = defaultdict(list)
        for branch in {branch for _, _, branch in inputs}:
            for row in rows.pop(branch, []):
                by_group[row[GROUP]].append(_InputRow(row, self.now_ms))
        for group, of_group in sorted(by_group.items()):
            self._call(operator.handleInputRows((group,), of_group, times), node.id, group, rows)
        for due, group in sorted(handle.timers):
            if due <= self.now_ms:
                expired = operator.handleExpiredTimer((group,), times, _Expired(due))
                self._call(expired, node.id, group, rows)
                handle.deleteTimer(due)
        operator.close()

    def _call(
        self, output: Iterable[Any], name: str, group: int, rows: dict[int, list[Values]]
    ) -> None:
        handle = self.handles[name]
        handle.use(group)
        for row in output:
            values = row.asDict(True)
            if values[LATE]:
                self.late[name] += values[LATE]
            else:
                rows[values[BRANCH]].append(values)
