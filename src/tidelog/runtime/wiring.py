"""Wiring: gates and the edges between the subtasks of a job.

Invariant: every subtask of a consumer has one channel per subtask of each of its inputs, in the
order of the inputs; events travel on all of them, records on those the partitioner chooses.
"""

from tidelog.runtime.channel import Gate
from tidelog.runtime.graph import Edge, Vertex
from tidelog.runtime.output import Output, OutputEdge
from tidelog.runtime.partition import Broadcast, ByKey, Forward, Partitioner, Rebalance
from tidelog.runtime.worktime import WorkTime


class Wiring:
    """The channels of one job."""

    def __init__(self, vertices: list[Vertex], key_groups: int, buffers: int) -> None:
        self._vertices = vertices
        self._key_groups = key_groups
        self.gates = {vertex.id: _gates(vertex, buffers) for vertex in vertices}

    def output(self, vertex: Vertex, subtask: int, work: WorkTime) -> Output:
        """The edges out of a subtask."""
        edges = []
        for consumer in self._vertices:
            first = 0
            for upstream, edge in consumer.inputs:
                if upstream is vertex:
                    partitioner = self._partitioner(edge, vertex, subtask, consumer)
                    channels = (first + subtask,) * consumer.parallelism
                    gates = tuple(self.gates[consumer.id])
                    edges.append(OutputEdge(partitioner, gates, channels))
                first += upstream.parallelism
        return Output(edges, work)

    def _partitioner(
        self, edge: Edge, producer: Vertex, subtask: int, consumer: Vertex
    ) -> Partitioner:
        targets = consumer.parallelism
        if edge.routing == "key":
            assert edge.key_of is not None
            name = f"key_by before operator {consumer.id!r}"
            return ByKey(edge.key_of, targets, self._key_groups, name)
        if edge.routing == "broadcast":
            return Broadcast(targets)
        # Forwarding needs a partner for every subtask; without one the buffers are spread.
        if edge.routing == "forward" and producer.parallelism == targets:
            return Forward(subtask)
        return Rebalance(targets, subtask)


def _gates(vertex: Vertex, buffers: int) -> list[Gate]:
    channels = sum(upstream.parallelism for upstream, _ in vertex.inputs)
    return [Gate(channels, buffers) for _ in range(vertex.parallelism)]
