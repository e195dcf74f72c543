"""Vertices: the operators of a job, chained into the tasks that run them; which process has which.

Invariants: a vertex is a chain of operators between which records pass by function call. A subtask
is in one process; every worker has its share of each operator, and subtasks of equal number are
together, so forward edges between operators of one parallelism cross no process.
"""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from tidelog.checkpoint.formats import POSITIONS, TRANSACTIONS
from tidelog.errors import ConfigError
from tidelog.ids import SubtaskId
from tidelog.runtime.graph import Job
from tidelog.runtime.node import Edge, Node
from tidelog.runtime.sink import Sink
from tidelog.runtime.source import Source

_LONGEST: Final = 500
"""Operators of a chain. Each is a frame of the interpreter, which has 1,000: the rest is for what
the operators call.
"""


class Input(NamedTuple):
    """Where records of a vertex come from."""

    upstream: "Vertex"
    edge: Edge


class Vertex(msgspec.Struct, eq=False):
    """A chain of operators that runs as one task per subtask."""

    id: str
    nodes: list[Node]
    parallelism: int
    inputs: list["Input"] = msgspec.field(default_factory=list)
    knows_splits: bool = False
    """Whether the split of each output buffer is known: no operator so far keeps records."""

    def __post_init__(self) -> None:
        known_upstream = any(upstream.knows_splits for upstream in self.upstreams)
        self.knows_splits = self.head.source is not None or (known_upstream and not self.head.keyed)

    @property
    def upstreams(self) -> list["Vertex"]:
        """The vertices in front, in the order of the inputs."""
        return [upstream for upstream, _ in self.inputs]

    @property
    def head(self) -> Node:
        """The operator that owns the vertex's state."""
        return self.nodes[0]

    @property
    def subtasks(self) -> list[SubtaskId]:
        return [SubtaskId(self.id, index) for index in range(self.parallelism)]

    @property
    def formats(self) -> dict[str, int]:
        """Formats of what its source and its sink store, by kind."""
        source, sink = self.head.source, self.nodes[-1].sink
        formats = {} if source is None else {POSITIONS: source.position_format}
        return formats if sink is None else {**formats, TRANSACTIONS: sink.transaction_format}

    @property
    def makes_watermarks(self) -> bool:
        """Whether an operator of the vertex makes watermarks, so that none before it matter."""
        return any(node.makes_watermarks for node in self.nodes)


@dataclass(frozen=True)
class Share:
    """The subtasks of one process, by its number among the workers."""

    worker: int = 0
    """The worker's number; -1: the parent, which has no subtasks."""
    workers: int = 1

    def worker_of(self, subtask: int) -> int:
        return subtask % self.workers

    def has(self, subtask: int) -> bool:
        return self.worker_of(subtask) == self.worker

    def of(self, subtasks: Iterable[SubtaskId]) -> list[SubtaskId]:
        """The ones of these subtasks that this process has."""
        return [subtask for subtask in subtasks if self.has(subtask.subtask)]


ALL: Final = Share()
"""The share of a process that has all subtasks."""
NONE: Final = Share(-1)
"""The share of the parent of workers."""


def compile_job(job: Job, parallelism: int, chain_heads: Collection[str] = ()) -> list[Vertex]:
    """Vertices of chained operators, sources first; `chain_heads` begin one. Raises ConfigError."""
    if not job.has("caller") and not (job.has("source") and job.has("sink")):
        raise ConfigError(
            f"job {job.name!r}",
            expected="at least one source and one sink",
            found="no sink" if job.has("source") else "no source",
            action="end every stream with .sink(...)",
        )
    consumers: Counter[int] = Counter()
    vertex_of: dict[int, Vertex] = {}
    vertices: list[Vertex] = []
    for node in job.nodes:
        consumers.update([id(edge.node) for edge in node.inputs])
    for node in job.nodes:
        inputs = [Input(vertex_of[id(edge.node)], edge) for edge in node.inputs]
        node_parallelism = _parallelism(node, inputs, parallelism)
        upstream = inputs[0].upstream if _chains(node, consumers) else None
        if (
            upstream is not None
            and upstream.parallelism == node_parallelism
            and len(upstream.nodes) < _LONGEST
            # After a keyed operator it has a task of its own: they follow different watermarks.
            and not (node.makes_watermarks and upstream.head.keyed)
            and node.id not in chain_heads
        ):
            vertex = upstream
            vertex.nodes.append(node)
        else:
            vertex = Vertex(node.id, [node], node_parallelism, inputs)
            vertices.append(vertex)
        vertex_of[id(node)] = vertex
    return vertices


def _parallelism(node: Node, inputs: list[Input], of_job: int) -> int:
    """How many subtasks a node has.

    By default as many as the streams that it continues: spread over more or fewer subtasks, records
    of one subtask would overtake each other where the job has no exchange.
    """
    if node.parallelism is not None:
        return node.parallelism
    continued = [upstream.parallelism for upstream, edge in inputs if edge.routing == "forward"]
    exchanged = any(edge.routing in ("key", "rebalance") for _, edge in inputs)
    return max([*continued, of_job] if exchanged or not continued else continued)


def _chains(node: Node, consumers: Counter[int]) -> bool:
    if len(node.inputs) != 1 or node.inputs[0].routing != "forward" or node.inputs[0].tag:
        return False
    return consumers[id(node.inputs[0].node)] == 1


def sink_types(vertex: Vertex) -> tuple[str, ...]:
    """The classes of the sink that a vertex ends in, its own first; none for no sink."""
    return class_names(vertex.nodes[-1].sink, Sink)


def source_types(vertex: Vertex) -> tuple[str, ...]:
    """The classes of the source that a vertex begins with; none for no source."""
    return class_names(vertex.head.source, Source)


def class_names(instance: object | None, port: type) -> tuple[str, ...]:
    """The class of a source or a sink and its base classes, but for those of the port."""
    if instance is None:
        return ()
    return tuple(c.__qualname__ for c in type(instance).__mro__ if c not in port.__mro__)
