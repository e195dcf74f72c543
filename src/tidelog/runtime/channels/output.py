"""Outputs of a task: its edges to the channels of the next tasks.

Invariant: events go to every channel, records to those that the partitioner chooses, all in the
order they were emitted, but for barriers that overtake.
"""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from tidelog.ids import CheckpointId
from tidelog.runtime.channels.buffers import BufferLimit
from tidelog.runtime.channels.channel import BufferPool, Channel
from tidelog.runtime.channels.copies import copy_of
from tidelog.runtime.channels.messages import (
    Barrier,
    Batch,
    LatencyMarker,
    SideBatch,
    Splits,
    TaskEvent,
)
from tidelog.runtime.channels.partition import Partitioner
from tidelog.runtime.in_flight.capture import ChannelId, InFlight
from tidelog.runtime.operators.portion import Portion
from tidelog.runtime.operators.progress import Latencies
from tidelog.runtime.operators.turn import TURN_S, WorkTime


@dataclass(frozen=True, slots=True)
class OutputEdge:
    """One consumer vertex: our channel to each of its subtasks."""

    partitioner: Partitioner
    channels: tuple[Channel, ...]
    names: tuple[ChannelId, ...]
    pool: BufferPool
    stays_aligned: bool = False
    """Barriers never overtake on this edge."""
    tag: str | None = None
    """The side output that this edge carries; None: the main output."""
    announces_splits: bool = False
    """The consumer, or a task after it, makes watermarks per split."""
    portion: Portion = field(default_factory=Portion)
    """How many records are routed at a time: a key function may take long."""


class _End(NamedTuple):
    """The producer's end of a channel."""

    channel: Channel
    name: ChannelId
    stays_aligned: bool


class ChannelOutput:
    """All edges out of one subtask."""

    def __init__(self, edges: list[OutputEdge], work: WorkTime, limit: BufferLimit) -> None:
        self._edges = edges
        self.limit = limit
        self._ends: list[_End] = []
        for edge in edges:
            for channel, name in zip(edge.channels, edge.names, strict=True):
                self._ends.append(_End(channel, name, edge.stays_aligned))
        self._started_splits: dict[Hashable, None] = {}
        self._ended_splits: list[Hashable] = []
        """Splits that have begun and ended since the last announcement."""
        self._current: Hashable | None = None
        self._announced = False
        self.work = work
        self.records = 0
        self.latencies = Latencies(work.clock.monotonic)
        """Latencies of the markers that end at this output, as nothing follows on it."""
        self._markers = 0

    @property
    def available(self) -> bool:
        """There is room for the usual output of one buffer of input."""
        return all(edge.pool.available for edge in self._edges)

    def due(self) -> bool:
        """Whether what was sent waits for a checkpoint alone."""
        return False

    def notify(self, listener: Callable[[], None]) -> None:
        """Call `listener` when an edge becomes available."""
        for edge in self._edges:
            edge.pool.notify(listener)

    def joined(self, batches: Iterable[Batch]) -> Iterable[Batch]:
        """What a buffer of input has become, in few buffers: each is handled at once."""
        return self.limit.joined(batches, self.work.turn.now, TURN_S)

    async def emit(self, batch: Batch) -> None:
        """Send records as buffers of limited size.

        Those that exceed what the output has room for take its overdraft; when that is used up
        too, the rest waits (back-pressure).
        """
        if not batch.records:
            return
        tag = None
        if isinstance(batch, SideBatch):
            tag, batch = batch.tag, Batch(batch.records, batch.times)
        self.records += len(batch.records)
        edges = [edge for edge in self._edges if edge.tag == tag]
        for buffer in self.limit.cut(batch):
            # The last one gets the records themselves, which nobody has had until then.
            for edge in edges:
                outgoing = buffer if edge is edges[-1] else copy_of(buffer)
                if not edge.partitioner.divisible:
                    await self._route(edge, outgoing)
                    continue
                for piece in edge.portion.pieces(outgoing, self.work.turn):
                    await self._route(edge, piece)

    async def _route(self, edge: OutputEdge, buffer: Batch) -> None:
        count, size_bytes = len(buffer.records), buffer.size_bytes
        started = self.work.clock.monotonic()
        routed = list(edge.partitioner.route(buffer))
        edge.portion.took(count, self.work.called(edge.partitioner.name, started))
        for target, part in routed:
            part.size_bytes = size_bytes * len(part.records) // count
            await self._send(edge, target, part)
        if self.work.turn.ended():
            await self.work.rest()

    async def _send(self, edge: OutputEdge, target: int, buffer: Batch) -> None:
        edge.channels[target].send(buffer)
        if edge.pool.exhausted:
            with self.work.waiting():
                await edge.pool.room()

    @property
    def announces_splits(self) -> bool:
        """Some downstream task makes watermarks per split."""
        return any(edge.announces_splits for edge in self._edges)

    def splits_changed(
        self, started_splits: Iterable[Hashable] = (), ended_splits: Iterable[Hashable] = ()
    ) -> None:
        """Note what the next announcement tells: only changes, for splits may be thousands."""
        if not self.announces_splits:
            return  # and nothing is ever sent
        self._started_splits.update(dict.fromkeys(started_splits))
        for split in ended_splits:
            if split in self._started_splits:
                del self._started_splits[split]
            else:
                self._ended_splits.append(split)

    def announce_splits(self, current: Hashable | None) -> None:
        """Send which splits have changed and that of the next records, if there is anything new, on
        the edges that want it.
        """
        changed = self._started_splits or self._ended_splits or current != self._current
        if self._announced and not changed:
            return
        splits = Splits(tuple(self._started_splits), tuple(self._ended_splits), current)
        self._started_splits, self._ended_splits = {}, []
        self._current, self._announced = current, True
        for edge in self._edges:
            for channel in edge.channels if edge.announces_splits else ():
                channel.send(splits)

    def mark(self, marker: LatencyMarker) -> None:
        """Send a marker behind the records so far, on one channel; each has its turn.

        Where streams branch and meet again, markers must not multiply with the paths.
        """
        if not self._edges:
            self.latencies.add(marker.read_at)
            return
        turn, edge_number = divmod(self._markers, len(self._edges))
        self._markers += 1
        edge = self._edges[edge_number]
        target = edge.partitioner.target_of_marker(turn, len(edge.channels))
        edge.channels[target].send(marker)

    async def announce(self, event: TaskEvent) -> None:
        for channel, _, _ in self._ends:
            channel.send(event)

    def forward(self, barrier: Barrier, in_flight: InFlight | None) -> None:
        """Send a barrier; what one that overtakes has passed is in-flight data.

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
            if channel.holds(barrier.checkpoint, partial(in_flight.record, name, ())):
                in_flight.expect(name)

    def switch(self, barrier: Barrier, in_flight: InFlight) -> None:
        """The checkpoint takes too long: barriers that still wait overtake what is before them."""
        for channel, name, _ in self._ends:
            if in_flight.expects(name):
                in_flight.record(name, channel.move_first(barrier.checkpoint, barrier))

    def forget(self, checkpoint: CheckpointId) -> None:
        """The checkpoint was given up: do not track its barriers any more."""
        for channel, _, _ in self._ends:
            channel.forget(checkpoint)

    async def pre_commit(self, checkpoint: CheckpointId) -> tuple[bytes, ...]:
        """No transactions: records go to other tasks."""
        return ()

    async def commit(self, checkpoint: CheckpointId) -> None:
        """Nothing: records go to other tasks."""
