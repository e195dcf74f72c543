"""Stream tasks: the loop of a subtask fed by channels.

Invariants: barriers are handled in the order the alignment decides; a watermark goes on only when
it reached this task on all channels.
"""

from tidelog.ids import CheckpointId
from tidelog.runtime.alignment import Alignment
from tidelog.runtime.channel import Gate
from tidelog.runtime.messages import Barrier, Batch, EndOfData, Watermark
from tidelog.runtime.task import Task, TaskParts
from tidelog.state.processor import MAX_WATERMARK


class StreamTask(Task):
    """A task fed by other tasks."""

    def __init__(self, parts: TaskParts, gate: Gate, *, exactly_once: bool) -> None:
        super().__init__(parts)
        self.gate = gate
        self._alignment = Alignment(gate.channels, exactly_once=exactly_once)
        self._ended_channels: set[int] = set()
        self._watermarks: list[int | None] = [None] * gate.channels

    async def run(self) -> None:
        clock, work = self.parts.effects.clock, self.parts.output.work
        try:
            await self._resume()
            while True:
                received = await self.gate.get()
                with work.working():
                    if received is None:
                        await self._emit(self.parts.chain.tick(clock.now_ms()))
                        await self._flush_if_due()
                    else:
                        await self._receive(*received)
                # Let uploads and other tasks have their turn also when no channel runs dry.
                await clock.sleep(0)
        finally:
            self._stop()

    def abort(self, checkpoint: CheckpointId) -> None:
        super().abort(checkpoint)
        if self._alignment.abort(checkpoint).unblock:
            self.gate.unblock()

    async def _receive(self, channel: int, message: object) -> None:
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
                self._ended_channels.add(channel)
                if len(self._ended_channels) == self.gate.channels:
                    await self._end()

    async def _barrier(self, channel: int, barrier: Barrier) -> None:
        decision = self._alignment.barrier(channel, barrier.checkpoint)
        if decision.unblock:
            self.gate.unblock()
        if decision.block:
            self.gate.block(channel)
        if decision.complete:
            await self._checkpoint(barrier)

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
