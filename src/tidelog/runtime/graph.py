"""The job graph: what users build, and its compilation into vertices.

Invariants: operator ids are unique within a job and do not depend on anything but the order and
names of the calls that built it, so the same program finds its state again; a vertex is a chain
of operators between which records pass by function call.
"""

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from tidelog.errors import ConfigError
from tidelog.runtime.operators.aggregate import Aggregate
from tidelog.runtime.operators.broadcast import OnRecord, OnRule, Rules, WithBroadcast
from tidelog.runtime.operators.operator import OperatorFactory
from tidelog.runtime.operators.process import Process
from tidelog.runtime.operators.stateless import AssignEventTime, Filter, FlatMap, Map, MapBatches
from tidelog.runtime.operators.window import AggregateWindow, RecordsWindow, WindowSpan
from tidelog.runtime.sink import Sink
from tidelog.runtime.source import Source
from tidelog.state.processor import StatefulProcessor, TimeMode

Routing = Literal["forward", "rebalance", "broadcast", "key"]


@dataclass(slots=True, eq=False)
class Node:
    """One operator of the logical graph."""

    id: str
    inputs: list["Edge"] = field(default_factory=list)
    source: Source | None = None
    sink: Sink | None = None
    operator: OperatorFactory | None = None
    parallelism: int | None = None
    """None: the job's."""
    keyed: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Edge:
    """Records of `node` flow here, partitioned like this."""

    node: Node
    routing: Routing
    key_of: Callable[[Any], Any] | None = None


class Job:
    """A named graph of sources, operators and sinks.

    `record_types` are the types that records are made of, besides Python's basic types, dates,
    decimals and UUIDs: an unaligned checkpoint stores records that are on their way.
    """

    def __init__(self, name: str, *, record_types: Iterable[type] = ()) -> None:
        self.name = name
        self.record_types = tuple(record_types)
        self.nodes: list[Node] = []
        self._counts: dict[str, int] = {}

    def source(
        self, source: Source, *, name: str = "source", parallelism: int | None = None
    ) -> "Stream":
        """Start a stream."""
        node = self._add(name, [], parallelism)
        node.source = source
        return Stream(self, [Edge(node, "forward")])

    def _add(self, name: str, inputs: list[Edge], parallelism: int | None = None) -> Node:
        count = self._counts[name] = self._counts.get(name, 0) + 1
        node = Node(name if count == 1 else f"{name}-{count}", inputs, parallelism=parallelism)
        if any(other.id == node.id for other in self.nodes):
            raise ConfigError(
                f"operator name {node.id!r}",
                expected="a name no other operator of the job has",
                found="two of them",
                action="pass another name=",
            )
        self.nodes.append(node)
        return node


class Stream:
    """A stream of records."""

    def __init__(self, job: Job, edges: list[Edge]) -> None:
        self._job = job
        self._edges = edges

    def map(self, function: Callable[[Any], Any], *, name: str = "map") -> "Stream":
        """Apply a function to every record."""
        return self._then(name, lambda: Map(function))

    def filter(self, predicate: Callable[[Any], bool], *, name: str = "filter") -> "Stream":
        """Keep the records a predicate holds for."""
        return self._then(name, lambda: Filter(predicate))

    def flat_map(
        self, function: Callable[[Any], Iterable[Any]], *, name: str = "flat-map"
    ) -> "Stream":
        """Replace every record by any number of records."""
        return self._then(name, lambda: FlatMap(function))

    def map_batches(
        self, function: Callable[[list[Any]], list[Any]], *, name: str = "map-batches"
    ) -> "Stream":
        """Apply a function to whole buffers of records (fast path; buffers may be of any size)."""
        return self._then(name, lambda: MapBatches(function))

    def event_time(
        self,
        time_of: Callable[[Any], int],
        *,
        max_delay_ms: int = 0,
        name: str = "event-time",
    ) -> "Stream":
        """Assign event times (milliseconds); records later than the delay count as late."""
        return self._then(name, lambda: AssignEventTime(time_of, max_delay_ms))

    def rebalance(self) -> "Stream":
        """Spread buffers evenly over the next operator's subtasks."""
        return Stream(self._job, [Edge(edge.node, "rebalance") for edge in self._edges])

    def broadcast(self) -> "Stream":
        """Send every record to all of the next operator's subtasks."""
        return Stream(self._job, [Edge(edge.node, "broadcast") for edge in self._edges])

    def with_broadcast(
        self, rules: "Stream", *, on_rule: OnRule, on_record: OnRecord, name: str = "with-broadcast"
    ) -> "Stream":
        """Handle every record with what all of the stream `rules` has told so far.

        `on_rule(rule, known)` changes the map of what is known; every subtask calls it with every
        rule. `on_record(record, known)` reads it and returns output records. The map, of msgpack
        values, is part of every checkpoint; keep it small. No order between rules and records.
        """
        told = rules._then(f"{name}-rules", Rules).broadcast()
        both = Stream(self._job, [*self._edges, *told._edges])
        return both._then(name, lambda: WithBroadcast(on_rule, on_record))

    def union(self, *others: "Stream") -> "Stream":
        """Merge streams; no order between them."""
        return Stream(self._job, list(itertools.chain(self._edges, *(o._edges for o in others))))

    def key_by(self, key_of: Callable[[Any], Any]) -> "KeyedStream":
        """Partition by a key: a str, int (64 bits), bool, bytes, float, None or a tuple of these.

        Floats are compared as in Spark: 0.0 and -0.0 are one key, and so are all NaNs. Keys of
        different types are different, also 1, 1.0 and True.
        """
        return KeyedStream(self._job, [Edge(edge.node, "key", key_of) for edge in self._edges])

    def sink(self, sink: Sink, *, name: str = "sink", parallelism: int | None = None) -> None:
        """End the stream in a sink."""
        node = self._job._add(name, self._edges, parallelism)
        node.sink = sink

    def _then(self, name: str, operator: OperatorFactory, *, keyed: bool = False) -> "Stream":
        node = self._job._add(name, self._edges)
        node.operator = operator
        node.keyed = keyed
        return Stream(self._job, [Edge(node, "forward")])


class KeyedStream(Stream):
    """A stream partitioned by key; operators here have state per key."""

    def aggregate(
        self,
        value_of: Callable[[Any], Any],
        combine: Callable[[Any, Any], Any],
        *,
        emit_updates: bool = False,
        name: str = "aggregate",
    ) -> Stream:
        """Combine a value of every record per key.

        Emits (key, value) for every key at the end of the data, or after every buffer for the
        keys it changed when `emit_updates` is set. Values are msgpack values.
        """
        return self._then(
            name, lambda: Aggregate(value_of, combine, emit_updates=emit_updates), keyed=True
        )

    def window(
        self,
        size_ms: int,
        slide_ms: int | None = None,
        *,
        value_of: Callable[[Any], Any],
        combine: Callable[[Any, Any], Any],
        name: str = "window",
    ) -> Stream:
        """Combine a value of every record per key and event-time window.

        Emits (key, window start, value) when the watermark passes the window's end. Tumbling
        without a slide.
        """
        span = WindowSpan(size_ms, slide_ms or size_ms)
        return self._then(name, lambda: AggregateWindow(span, value_of, combine), keyed=True)

    def window_records(
        self,
        size_ms: int,
        slide_ms: int | None = None,
        *,
        function: Callable[[Any, int, list[Any]], Any],
        name: str = "window",
    ) -> Stream:
        """Like `window`, but keeps the records (msgpack values) until the window fires.

        Emits what the function makes of (key, window start, records).
        """
        span = WindowSpan(size_ms, slide_ms or size_ms)
        return self._then(name, lambda: RecordsWindow(span, function), keyed=True)

    def transform_with_state(
        self,
        processor: Callable[[], StatefulProcessor],
        *,
        time_mode: TimeMode = "none",
        name: str = "process",
    ) -> Stream:
        """Run a `StatefulProcessor` (a class or factory; one instance per subtask)."""
        return self._then(name, lambda: Process(processor(), time_mode), keyed=True)


@dataclass(slots=True, eq=False)
class Vertex:
    """A chain of operators that runs as one task per subtask."""

    id: str
    nodes: list[Node]
    parallelism: int
    inputs: list[tuple["Vertex", Edge]] = field(default_factory=list)

    @property
    def head(self) -> Node:
        """The operator that owns the vertex's state."""
        return self.nodes[0]


def compile_job(job: Job, parallelism: int) -> list[Vertex]:
    """Chain operators into vertices, sources first; raises ConfigError for an incomplete job."""
    if not any(node.source for node in job.nodes) or not any(node.sink for node in job.nodes):
        raise ConfigError(
            f"job {job.name!r}",
            expected="at least one source and one sink",
            action="end every stream with .sink(...)",
        )
    consumers = {
        id(node): [n for n in job.nodes for edge in n.inputs if edge.node is node]
        for node in job.nodes
    }
    vertex_of: dict[int, Vertex] = {}
    vertices: list[Vertex] = []
    for node in job.nodes:
        wanted = parallelism if node.parallelism is None else node.parallelism
        if _chains(node, consumers) and vertex_of[id(node.inputs[0].node)].parallelism == wanted:
            vertex = vertex_of[id(node.inputs[0].node)]
            vertex.nodes.append(node)
        else:
            vertex = Vertex(node.id, [node], wanted)
            vertex.inputs = [(vertex_of[id(edge.node)], edge) for edge in node.inputs]
            vertices.append(vertex)
        vertex_of[id(node)] = vertex
    return vertices


def _chains(node: Node, consumers: dict[int, list[Node]]) -> bool:
    if len(node.inputs) != 1 or node.inputs[0].routing != "forward":
        return False
    return len(consumers[id(node.inputs[0].node)]) == 1
