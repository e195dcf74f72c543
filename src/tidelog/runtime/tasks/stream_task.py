"""Stream tasks: the loop of a subtask fed by channels.

Invariants: barriers are handled in the order the alignment decides; a watermark goes on only when
it reached this task on all channels; records are taken only while there is room for their output,
so a barrier is always heard of; a channel whose producer exited has reached every later barrier.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from tidelog.ids import CheckpointId
from tidelog.runtime.channels.gate import Announced, Gate
from tidelog.runtime.channels.messages import (
    Barrier,
    Batch,
    EndOfChannel,
    EndOfData,
    Message,
    Watermark,
)
from tidelog.runtime.in_flight.capture import ChannelId, InFlight
from tidelog.runtime.tasks.alignment import Aligned, Alignment
from tidelog.runtime.tasks.parts import TaskParts
from tidelog.runtime.tasks.task import Task
from tidelog.state.processor import MAX_WATERMARK


class StreamTask(Task):
    """A task fed by other tasks; `names` are those of the gate's channels."""

    def __init__(
        self,
        parts: TaskParts,
        gate: Gate,
        names: Sequence[ChannelId],
        *,
        exactly_once: bool,
        stay_aligned: frozenset[int] = frozenset(),
    ) -> None:
        super().__init__(parts)
        self.gate = gate
        self._names = names
        count = len(gate.channels)
        self._alignment = Alignment(
            count,
            exactly_once=exactly_once,
            switching=parts.switching,
            stay_aligned=stay_aligned,
        )
        self._reminder: asyncio.Task[None] | None = None
        self._ended_channels: dict[int, bool] = {}
        """Those without more data, and whether that is for good."""
        self._exited_channels: set[int] = set()
        self._newest: Barrier | None = None
        self._watermarks: list[int | None] = [None] * count
        gate.deliver_while(lambda: parts.output.available)
        parts.output.notify(gate.wake)

    async def run(self) -> None:
        clock, work = self.parts.effects.clock, self.parts.output.work
        try:
            await self._resume()
            while not (self._leaving and len(self._exited_channels) == len(self.gate.channels)):
                received = await self._next()
                with work.working():
                    await self._handle(received)
                # Let uploads and other tasks have their turn also when no channel runs dry.
                await clock.sleep(0)
            await self._exit()
        finally:
            self._stop()

    def abort(self, checkpoint: CheckpointId) -> None:
        super().abort(checkpoint)
        for channel in self.gate.channels:
            channel.stop_recording(checkpoint)
        if self._alignment.abort(checkpoint).unblock:
            self.gate.unblock()

    def _start(self, barrier: Barrier) -> None:
        """Nobody in front is left to bring it: it is reached where the channels end."""
        self.gate.announce(barrier)

    def _wake_up(self) -> None:
        self.gate.poke()

    def _stop(self) -> None:
        super()._stop()
        if self._reminder is not None:
            self._reminder.cancel()

    async def _next(self) -> tuple[int, Message] | Announced | None:
        output = self.parts.output
        if output.available:
            return await self.gate.get()
        with output.work.waiting():
            return await self.gate.get()

    async def _handle(self, received: tuple[int, Message] | Announced | None) -> None:
        match received:
            case None if self.parts.output.available and self._held is None:
                await self._tick(self.parts.effects.clock.now_ms())
            case Announced(barrier):
                await self._announced(barrier)
            case (channel, message):
                await self._receive(channel, message)

    async def _tick(self, now_ms: int) -> None:
        # Behind the end of the data no timer may fire: the tasks behind have ended as well.
        if not self._ended:
            await self._emit(self.parts.chain.tick(now_ms))
            await self._flush_if_due()

    async def _receive(self, channel: int, message: Message) -> None:
        match message:
            case Batch():
                self.parts.metrics.records_in += len(message.records)
                await self._emit(self.parts.chain.process(message))
                await self._make_watermark()
                await self._flush_if_due()
            case Barrier():
                await self._barrier(channel, message)
            case Watermark():
                await self._receive_watermark(channel, message.time)
            case EndOfData():
                self._ended_channels[channel] = message.drain
                if len(self._ended_channels) == len(self.gate.channels):
                    await self._end(drain=all(self._ended_channels.values()))
            case EndOfChannel():
                self._exited_channels.add(channel)
                await self._channel_ended(channel)

    async def _announced(self, barrier: Barrier) -> None:
        decision = self._alignment.announced(barrier, self._now())
        await self._follow(decision, self._newest_of(barrier))

    async def _barrier(self, channel: int, barrier: Barrier) -> None:
        decision = self._alignment.barrier(channel, barrier, self._now())
        if decision.block:
            self.gate.block(channel)
        await self._follow(decision, self._newest_of(barrier))

    async def _channel_ended(self, channel: int) -> None:
        decision = self._alignment.ended(channel, self._now())
        if self._newest is not None:
            await self._follow(decision, self._newest)

    def _newest_of(self, barrier: Barrier) -> Barrier:
        """The barrier that decisions are about from now on."""
        if self._newest is None or barrier.checkpoint >= self._newest.checkpoint:
            self._newest = barrier
        return self._newest

    async def _follow(self, decision: Aligned, barrier: Barrier) -> None:
        if decision.unblock:
            self.gate.unblock()
        if decision.complete:
            await self._checkpoint(barrier, self._alignment.seen_at)
        elif decision.overtake:
            await self._checkpoint(replace(barrier, order="unaligned"), self._alignment.seen_at)
        else:
            self._remind(barrier)

    def _record_inputs(self, in_flight: InFlight) -> None:
        for channel, name in zip(self.gate.channels, self._names, strict=True):
            if channel.number not in self._alignment.reached:
                channel.record(in_flight.checkpoint, in_flight.recorder(name))

    def _remind(self, barrier: Barrier) -> None:
        """Announce the barrier again at its deadline."""
        deadline = self._alignment.deadline
        if self._reminder is not None:
            self._reminder.cancel()
        if deadline is not None and deadline > self._now():
            self._reminder = asyncio.ensure_future(self._announce_at(deadline, barrier))

    async def _announce_at(self, deadline: float, barrier: Barrier) -> None:
        await self.parts.effects.clock.sleep(deadline - self._now())
        self.gate.announce(barrier)

    async def _between_timers(self) -> None:
        while (interruption := await self.gate.interruption()) is not None:
            await self._announced(interruption.barrier)

    async def _receive_watermark(self, channel: int, time: int) -> None:
        self._watermarks[channel] = time
        if self.parts.chain.generates_watermarks and time != MAX_WATERMARK:
            return
        known = [mark for mark in self._watermarks if mark is not None]
        if len(known) == len(self._watermarks):
            await self._advance_watermark(min(known))

    async def _make_watermark(self) -> None:
        made = self.parts.chain.generated_watermark()
        if made is not None:
            await self._advance_watermark(made)
