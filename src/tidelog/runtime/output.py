"""Outputs of a task: its edges to the gates of the next tasks.

Invariant: barriers, watermarks and the end of data go to every channel, records to those that
the partitioner chooses, all in the order they were emitted.
"""

from dataclasses import dataclass

from tidelog.runtime.channel import Gate
from tidelog.runtime.messages import Barrier, Batch, EndOfData, Message, Watermark
from tidelog.runtime.partition import Partitioner
from tidelog.runtime.worktime import WorkTime


@dataclass(frozen=True, slots=True)
class OutputEdge:
    """One consumer vertex: its gates by subtask, our channel number in each."""

    partitioner: Partitioner
    gates: tuple[Gate, ...]
    channels: tuple[int, ...]


class Output:
    """All edges out of one subtask."""

    def __init__(self, edges: list[OutputEdge], work: WorkTime) -> None:
        self._edges = edges
        self.work = work
        self.records = 0

    async def emit(self, batch: Batch) -> None:
        """Send a buffer; waits for room (back-pressure)."""
        if not batch.records:
            return
        self.records += len(batch.records)
        for edge in self._edges:
            for target, part in edge.partitioner.route(batch):
                await self._put(edge.gates[target], edge.channels[target], part)

    async def announce(self, event: Barrier | Watermark | EndOfData) -> None:
        """Send an event to all channels."""
        for edge in self._edges:
            for gate, channel in zip(edge.gates, edge.channels, strict=True):
                await self._put(gate, channel, event)

    async def _put(self, gate: Gate, channel: int, message: Message) -> None:
        if gate.full(channel):
            with self.work.waiting():
                await gate.put(channel, message)
        else:
            await gate.put(channel, message)
