"""Outputs of a task: its edges to the channels of the next tasks.

Invariant: events go to every channel, records to those that the partitioner chooses, all in the
order they were emitted, but for barriers that overtake.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tidelog.ids import CheckpointId
from tidelog.runtime.channels.channel import Channel
from tidelog.runtime.channels.messages import Barrier, Batch, EndOfChannel, EndOfData, Watermark
from tidelog.runtime.channels.partition import Partitioner
from tidelog.runtime.channels.pool import BufferPool
from tidelog.runtime.in_flight.capture import ChannelId, InFlight
from tidelog.runtime.tasks.worktime import WorkTime


@dataclass(frozen=True, slots=True)
class OutputEdge:
    """One consumer vertex: our channel to each of its subtasks."""

    partitioner: Partitioner
    channels: tuple[Channel, ...]
    names: tuple[ChannelId, ...]
    pool: BufferPool
    stays_aligned: bool = False
    """Barriers never overtake here."""


class Output:
    """All edges out of one subtask."""

    def __init__(self, edges: list[OutputEdge], work: WorkTime) -> None:
        self._edges = edges
        self._ends = [
            (channel, name, edge.stays_aligned)
            for edge in edges
            for channel, name in zip(edge.channels, edge.names, strict=True)
        ]
        self.work = work
        self.records = 0

    @property
    def available(self) -> bool:
        """There is room for what one buffer of input usually makes."""
        return all(edge.pool.available for edge in self._edges)

    def notify(self, listener: Callable[[], None]) -> None:
        """Call this when an edge became available."""
        for edge in self._edges:
            edge.pool.notify(listener)

    async def emit(self, batch: Batch) -> None:
        """Send a buffer; waits when even the overdraft is used up (back-pressure)."""
        if not batch.records:
            return
        self.records += len(batch.records)
        for edge in self._edges:
            for target, part in edge.partitioner.route(batch):
                edge.channels[target].send(part)
                if edge.pool.exhausted:
                    with self.work.waiting():
                        await edge.pool.room()

    async def announce(self, event: Watermark | EndOfData | EndOfChannel) -> None:
        """Send an event to all channels."""
        for channel, _, _ in self._ends:
            channel.send(event)

    def forward(self, barrier: Barrier, in_flight: InFlight | None) -> None:
        """Send a barrier; one that overtakes leaves behind in-flight data.

        One that may switch keeps `in_flight` open for the channels in which it has to wait.
        """
        for channel, name, stays_aligned in self._ends:
            if in_flight is not None and barrier.order == "unaligned" and not stays_aligned:
                in_flight.expect(name)
                in_flight.record(name, channel.send_first(barrier))
                continue
            channel.send(barrier)
            if in_flight is None or barrier.order != "may-switch" or stays_aligned:
                continue
            if channel.holds(barrier.checkpoint, in_flight.nothing(name)):
                in_flight.expect(name)

    def switch(self, barrier: Barrier, in_flight: InFlight) -> None:
        """The checkpoint takes too long: barriers that still wait overtake what is before them."""
        for channel, name, _ in self._ends:
            if in_flight.expects(name):
                in_flight.record(name, channel.move_first(barrier.checkpoint, barrier))

    def forget(self, checkpoint: CheckpointId) -> None:
        """The checkpoint was given up: nobody waits for its barriers any more."""
        for channel, _, _ in self._ends:
            channel.forget(checkpoint)
