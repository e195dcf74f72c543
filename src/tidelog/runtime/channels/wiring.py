"""Wiring: gates, pools and the channels between the subtasks of a job.

Invariant: every subtask of a consumer has one channel per subtask of each of its inputs, in the
order of the inputs; events travel on all of them, records on those the partitioner chooses.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tidelog.runtime.channels.gate import Gate
from tidelog.runtime.channels.output import Output, OutputEdge
from tidelog.runtime.channels.partition import Broadcast, ByKey, Forward, Partitioner, Rebalance
from tidelog.runtime.channels.pool import BufferPool
from tidelog.runtime.graph import Edge, Vertex
from tidelog.runtime.in_flight.capture import ChannelId
from tidelog.runtime.tasks.worktime import WorkTime


@dataclass(frozen=True, slots=True)
class Buffers:
    """How many buffers a channel holds before its sender waits, and a gate beyond that."""

    channel: int = 2
    overdraft: int = 5

    @property
    def at_consumer(self) -> int:
        """Those a consumer has room for."""
        return max(1, self.channel // 2)

    @property
    def at_producer(self) -> int:
        """Those that wait for room."""
        return max(1, self.channel - self.at_consumer)


class Wiring:
    """The channels of one job."""

    def __init__(self, vertices: list[Vertex], key_groups: int, buffers: Buffers) -> None:
        self._vertices = vertices
        self._key_groups = key_groups
        self._buffers = buffers
        self._pools: dict[tuple[str, int, int], BufferPool] = {}
        self.gates = {vertex.id: self._gates(vertex) for vertex in vertices}

    def output(self, vertex: Vertex, subtask: int, work: WorkTime) -> Output:
        """The edges out of a subtask."""
        return Output(list(self._edges(vertex, subtask)), work)

    def channels(self, vertex: Vertex, subtask: int) -> tuple[ChannelId, ...]:
        """What the channels of a gate connect, in their order."""
        return tuple(
            ChannelId(vertex.id, at, producer, subtask, behind=False)
            for at, (upstream, _) in enumerate(vertex.inputs)
            for producer in range(upstream.parallelism)
        )

    def stay_aligned(self, vertex: Vertex) -> frozenset[int]:
        """The channels of a vertex on which barriers never overtake."""
        return frozenset(
            number
            for number, name in enumerate(self.channels(vertex, 0))
            if stays_aligned(*vertex.inputs[name.input], vertex)
        )

    def partitioner(
        self, edge: Edge, producer: Vertex, subtask: int, consumer: Vertex
    ) -> Partitioner:
        """Who gets the records that a subtask sends over an edge."""
        targets = consumer.parallelism
        if edge.routing == "key":
            assert edge.key_of is not None
            name = f"key_by before operator {consumer.id!r}"
            return ByKey(edge.key_of, targets, self._key_groups, name)
        if edge.routing == "broadcast":
            return Broadcast(targets)
        if _pointwise(edge, producer, consumer):
            return Forward(subtask)
        return Rebalance(targets, subtask)

    def _edges(self, vertex: Vertex, subtask: int) -> Iterator[OutputEdge]:
        for consumer in self._vertices:
            first = 0
            for at, (upstream, edge) in enumerate(consumer.inputs):
                if upstream is vertex:
                    gates = self.gates[consumer.id]
                    yield OutputEdge(
                        partitioner=self.partitioner(edge, vertex, subtask, consumer),
                        channels=tuple(gate.channels[first + subtask] for gate in gates),
                        names=tuple(
                            ChannelId(consumer.id, at, subtask, target, behind=True)
                            for target in range(len(gates))
                        ),
                        pool=self._pools[consumer.id, at, subtask],
                        stays_aligned=stays_aligned(vertex, edge, consumer),
                    )
                first += upstream.parallelism

    def _gates(self, vertex: Vertex) -> list[Gate]:
        targets = vertex.parallelism
        pools = []
        for at, (upstream, _) in enumerate(vertex.inputs):
            for producer in range(upstream.parallelism):
                size = targets * self._buffers.at_producer
                pool = BufferPool(targets, size, self._buffers.overdraft)
                self._pools[vertex.id, at, producer] = pool
                pools.append(pool)
        return [Gate(pools, self._buffers.at_consumer) for _ in range(targets)]


def stays_aligned(producer: Vertex, edge: Edge, consumer: Vertex) -> bool:
    """Barriers never overtake on this edge: its in-flight data could not be redistributed.

    Point-wise, a record belongs to one subtask by its sender; broadcast, every subtask has it.
    """
    return edge.routing == "broadcast" or _pointwise(edge, producer, consumer)


def aligned_edges(vertices: list[Vertex]) -> tuple[str, ...]:
    """The edges on which barriers never overtake, for people."""
    return tuple(
        f"{producer.id} -> {consumer.id}"
        for consumer in vertices
        for producer, edge in consumer.inputs
        if stays_aligned(producer, edge, consumer)
    )


def _pointwise(edge: Edge, producer: Vertex, consumer: Vertex) -> bool:
    # Forwarding needs a partner for every subtask; without one the buffers are spread.
    return edge.routing == "forward" and producer.parallelism == consumer.parallelism
