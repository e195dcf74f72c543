"""Wiring: gates, pools and the channels between the subtasks of a job.

Invariant: every subtask of a consumer has one channel per subtask of each of its inputs, in the
order of the inputs; events travel on all of them, records on those the partitioner chooses.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from tidelog.runtime.channels.buffers import BufferLimit
from tidelog.runtime.channels.channel import BufferPool, Channel, ChannelAddress
from tidelog.runtime.channels.gate import Gate, TableGate
from tidelog.runtime.channels.output import ChannelOutput, OutputEdge
from tidelog.runtime.channels.partition import Broadcast, ByKey, Forward, Partitioner, Rebalance
from tidelog.runtime.in_flight.capture import ChannelId, InputChannel
from tidelog.runtime.node import Edge
from tidelog.runtime.operators.turn import WorkTime
from tidelog.runtime.subtasks.loading import loading
from tidelog.runtime.subtasks.vertices import ALL, Share, Vertex
from tidelog.state.registry import StateRegistry

if TYPE_CHECKING:
    from tidelog.runtime.workers.link import Exchange


class Buffers(msgspec.Struct, frozen=True):
    """How many buffers a channel holds before its sender waits, and a gate beyond that."""

    channel: int = 2
    overdraft: int = 5
    limit: BufferLimit = msgspec.field(default_factory=BufferLimit)

    @property
    def at_consumer(self) -> int:
        """Buffers of a channel that its consumer has room for."""
        return max(1, self.channel // 2)

    @property
    def at_producer(self) -> int:
        """Buffers of a channel that may wait for room."""
        return max(1, self.channel - self.at_consumer)

    def count(self, vertices: list[Vertex]) -> int:
        """The most buffers that all channels between these vertices hold."""
        buffers, per_channel = 0, self.at_consumer + self.at_producer
        for consumer in vertices:
            per_sender = consumer.parallelism * per_channel + self.overdraft
            buffers += per_sender * sum(upstream.parallelism for upstream in consumer.upstreams)
        return buffers


class Wiring:
    def __init__(
        self,
        vertices: list[Vertex],
        key_groups: int,
        buffers: Buffers,
        registries: Mapping[str, StateRegistry] | None = None,
        share: Share = ALL,
        exchange: "Exchange | None" = None,
    ) -> None:
        self._vertices = vertices
        self._wanting_splits = wanting_splits(vertices)
        self._share = share
        self._exchange = exchange
        self._registries = registries or {}
        """States by vertex; a vertex without an entry takes keys of any type."""
        self._key_groups = key_groups
        self._buffers = buffers
        self.limit = buffers.limit
        """The most that one buffer of the job holds."""
        self.loading = loading(vertices)
        self._pools: dict[tuple[str, int, int], BufferPool] = {}
        self.gates = {vertex.id: self._gates(vertex) for vertex in vertices}

    def output(self, vertex: Vertex, subtask: int, work: WorkTime) -> ChannelOutput:
        """The edges out of a subtask."""
        return ChannelOutput(list(self._edges(vertex, subtask)), work, self.limit)

    def inputs(self, vertex: Vertex, subtask: int) -> tuple[InputChannel, ...]:
        """The channels of a subtask's gate, in the gate's order."""
        announced, channels = vertex.id in self._wanting_splits, list[InputChannel]()
        for index, (upstream, edge) in enumerate(vertex.inputs):
            for producer in range(upstream.parallelism):
                sends = edge.routing != "forward" or producer % vertex.parallelism == subtask
                channel = InputChannel(
                    ChannelId(vertex.id, index, producer, subtask, at_producer=False),
                    stays_aligned(upstream, edge, vertex),
                    carries=sends and edge not in vertex.head.silent,
                    announces=announced and upstream.knows_splits,
                )
                channels.append(channel)
        return tuple(channels)

    def partitioner(self, edge: Edge, subtask: int, consumer: Vertex) -> Partitioner:
        """Chooses the targets of the records that a subtask sends over an edge."""
        targets = consumer.parallelism
        if edge.routing == "key":
            assert edge.key_of is not None
            name = f"key_by before operator {consumer.id!r}"
            registry = self._registries.get(consumer.id) or StateRegistry(consumer.id)
            types, sides = registry.keys, registry.key_sides
            return ByKey(edge.key_of, targets, self._key_groups, name, types, edge.side, sides)
        if edge.routing == "broadcast":
            return Broadcast(targets)
        if edge.routing == "forward":
            return Forward(subtask % targets)
        return Rebalance(targets, subtask)

    def _edges(self, vertex: Vertex, subtask: int) -> Iterator[OutputEdge]:
        for consumer in self._vertices:
            first = 0
            for index, (upstream, edge) in enumerate(consumer.inputs):
                if upstream is vertex:
                    pool = self._pools[consumer.id, index, subtask]
                    channels = tuple(
                        self._channel(consumer, target, first + subtask, pool)
                        for target in range(consumer.parallelism)
                    )
                    yield OutputEdge(
                        partitioner=self.partitioner(edge, subtask, consumer),
                        channels=channels,
                        names=tuple(
                            ChannelId(consumer.id, index, subtask, target, at_producer=True)
                            for target in range(len(channels))
                        ),
                        pool=pool,
                        stays_aligned=stays_aligned(vertex, edge, consumer),
                        tag=edge.tag,
                        announces_splits=vertex.knows_splits
                        and consumer.id in self._wanting_splits,
                    )
                first += upstream.parallelism

    def _channel(self, consumer: Vertex, target: int, number: int, pool: BufferPool) -> Channel:
        """The producer's end of the channel that the gate of a subtask has under a number."""
        if self._share.has(target):
            return self.gates[consumer.id][target].channels[number]
        assert self._exchange is not None
        address = ChannelAddress(consumer.id, target, number)
        return self._exchange.sending(address, self._buffers.at_consumer, pool)

    def _gates(self, vertex: Vertex) -> dict[int, Gate]:
        """The gates of the subtasks that this process has."""
        targets = vertex.parallelism
        pools: list[BufferPool] = []
        producers: list[int] = []
        table: list[int] = []
        for index, (upstream, edge) in enumerate(vertex.inputs):
            for producer in range(upstream.parallelism):
                size = targets * self._buffers.at_producer
                pool = BufferPool(targets, size, self._buffers.overdraft)
                self._pools[vertex.id, index, producer] = pool
                pools.append(pool)
                if edge.side == 1:
                    table.append(len(producers))
                producers.append(producer)

        def consumer_end(target: int, gate: Gate, number: int) -> Channel:
            producer = producers[number]
            if self._share.has(producer):
                return Channel(gate, number, self._buffers.at_consumer, pools[number])
            assert self._exchange is not None
            address = ChannelAddress(vertex.id, target, number)
            return self._exchange.receiving(gate, address, producer)

        gate = partial(TableGate, table=table) if vertex.id in self.loading.tables else Gate
        return {
            target: gate(len(pools), partial(consumer_end, target))
            for target in range(targets)
            if self._share.has(target)
        }


def wanting_splits(vertices: Sequence[Vertex]) -> set[str]:
    """The vertices that make watermarks, and those before one whose records have known splits."""
    wanting: set[str] = set()
    before: set[str] = set()
    for vertex in reversed(vertices):  # consumers first: each vertex is looked at once
        if vertex.makes_watermarks or (vertex.knows_splits and vertex.id in before):
            wanting.add(vertex.id)
            before |= {upstream.id for upstream in vertex.upstreams}
    return wanting


def stays_aligned(producer: Vertex, edge: Edge, consumer: Vertex) -> bool:
    """Whether barriers never overtake on an edge, as its in-flight data cannot be redistributed.

    On a broadcast edge every subtask has all records. On a forward edge a record belongs to one
    subtask because of its sender: in another shape later records of its key could overtake it,
    unless the consumer has one subtask.
    """
    if edge.routing == "forward":
        return not consumer.parallelism == 1 < producer.parallelism
    return edge.routing == "broadcast"
