"""Stream tasks: the loop of a subtask fed by channels.

Invariants: barriers are handled in the order the alignment decides; a watermark goes on only when
it reached this task on all channels and its timers have fired; while they do, records and barriers
come in between, and what is late is decided by the newest watermark that is there; records are
taken only while there is room for their output, so a barrier is always noticed; a channel whose
producer exited has reached every later barrier.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tidelog.ids import CheckpointId
from tidelog.runtime.channels.gate import Gate
from tidelog.runtime.channels.messages import (
    Barrier,
    Batch,
    EndOfChannel,
    EndOfData,
    EndOfInput,
    Idleness,
    LatencyMarker,
    Message,
    Splits,
    Watermark,
)
from tidelog.runtime.in_flight.capture import InFlight, InputChannel
from tidelog.runtime.operators.event_time import Origin
from tidelog.runtime.operators.turn import PAUSE
from tidelog.runtime.tasks.alignment import Aligned, Alignment
from tidelog.runtime.tasks.firing import FiringPass
from tidelog.runtime.tasks.reminder import BarrierReminder
from tidelog.runtime.tasks.row_fetches import RowFetches
from tidelog.runtime.tasks.task import Task
from tidelog.runtime.tasks.task_checkpoints import TaskParts
from tidelog.runtime.tasks.watermarks import (
    ChannelEnds,
    InputOrigins,
    OriginChanges,
    OriginWatermarks,
    WatermarkValve,
    channel_of,
)
from tidelog.state.event_time import MAX_WATERMARK


class StreamTask(Task):
    """A task fed by other tasks; `inputs` are the gate's channels."""

    def __init__(
        self, parts: TaskParts, gate: Gate, inputs: Sequence[InputChannel], *, exactly_once: bool
    ) -> None:
        super().__init__(parts)
        self.gate = gate
        self._inputs = inputs
        count = len(gate.channels)
        self._alignment = Alignment(
            count,
            exactly_once=exactly_once,
            switching=parts.switching,
            stay_aligned=[number for number, channel in enumerate(inputs) if channel.stays_aligned],
        )
        self._reminder = BarrierReminder(parts.effects.clock, gate.announce)
        self._ends = ChannelEnds(count)
        self._at_end = False
        """All input was handled, and the tasks downstream know it."""
        self._newest: Barrier | None = None
        self._valve = WatermarkValve(count)
        self._origins = InputOrigins(inputs)
        event_time = parts.chain.event_time
        self._waits = OriginWatermarks(event_time.watermark_of if event_time else lambda _: None)
        self._said_exhausted = False
        self._firing: FiringPass | None = None
        self._ticks_next = False
        """Processing time passed while timers of a watermark fired, or those of a moment."""
        self._row_fetches = None if parts.backend.is_whole else RowFetches(parts, gate)
        self._tracks_origins = parts.chain.event_time is not None or parts.output.announces_splits
        self._follow_origins(OriginChanges([origin for _, origin in self._origins.unannounced]))
        gate.deliver_while(self._has_room)
        parts.output.notify(gate.wake)
        gate.watched_by(parts.output.work.standstills)

    @property
    def waiting(self) -> list[int]:
        return self.gate.waiting

    async def run(self) -> None:
        work, events = self.parts.output.work, 0
        work.standstills.begin()
        try:
            await self._resume()
            while not (self._leaving and self._ends.exited):
                received = await self._next()
                busy_s, firing = work.busy_s, self._firing
                with work.working():
                    await self._handle(received)
                batch = type(received) is tuple and isinstance(received[1], Batch)
                if firing is not None:
                    firing.others_took(work.busy_s - busy_s, self._now())
                events += 1
                # Also when no channel runs dry. Of events there are some in each channel at once,
                # and others wait for what the last of them leads to.
                if batch or events > len(self.gate.channels) // 4 or work.turn.ended():
                    events = 0
                    await self._rest()
            await self._exit()
        finally:
            await self._stop()

    def abort(self, checkpoint: CheckpointId) -> None:
        super().abort(checkpoint)
        self.gate.poke()  # timers that waited for a savepoint with a stop go on
        for channel in self.gate.channels:
            channel.stop_recording(checkpoint)
        if self._alignment.abort(checkpoint).unblock:
            self.gate.unblock()

    def _start(self, barrier: Barrier) -> None:
        """All upstream tasks have exited: the barrier counts as reached on every channel."""
        self.gate.announce(barrier)

    def _wake_up(self) -> None:
        self.gate.poke()

    def time_passed(self) -> None:
        self.gate.poke()

    async def _stop(self) -> None:
        self._reminder.cancel()
        await super()._stop()

    async def _next(self) -> tuple[int, Message] | Barrier | None:
        output = self.parts.output
        # After the barrier of a stop nothing may be emitted.
        while (firing := self._firing) is not None and self._stopping_with is None:
            if self._has_room():
                received = await self.gate.interruption()
            else:
                with output.work.waiting():
                    received = await self.gate.interruption()
            if received is not None:
                return received
            if self.gate.has_next and not firing.due:
                break
            await self._fire_on(firing)
        if self._has_room():
            return await self.gate.get()
        with output.work.waiting():
            return await self.gate.get()

    async def _handle(self, received: tuple[int, Message] | Barrier | None) -> None:
        match received:
            case None if self._has_room() and self._stopping_with is None:
                await self._tick(self.parts.effects.clock.now_ms())
            case Barrier():
                decision = self._alignment.announced(received, self._now())
                await self._follow(decision, self._newest_of(received))
            case (_, LatencyMarker() as marker):
                self.parts.output.mark(marker)
            case (channel, message):
                await self._receive(channel, message)

    async def _tick(self, now_ms: int) -> None:
        # After the end of the data no timer may fire: downstream tasks have ended as well. Before
        # it no more may: the state that the job goes on from has not fired them.
        if not self._data_ended and self._ending_with is None:
            if self._firing is None:
                await self._begin(self.parts.chain.tick(now_ms), None)
            else:
                self._ticks_next = True
            if self.parts.chain.event_time is not None:
                self._look_for_idle()
                await self._make_watermark()
            await self._flush_if_due()

    async def _receive(self, channel: int, message: Message) -> None:
        match message:
            case Batch():
                await self._memory_free()
                self.records_in += len(message.records)
                origin = self._origins.current(channel)
                if self._tracks_origins:  # for own watermarks and for downstream tasks
                    self.parts.chain.read_from(origin)
                    self._announce_splits(origin)
                await self._handle_input(message)
                await self._make_watermark(origin)
                await self._flush_if_due()
            case Barrier():
                decision = self._alignment.barrier(channel, message, self._now())
                if decision.block:
                    self.gate.block(channel)
                await self._follow(decision, self._newest_of(message))
            case Watermark():
                self._valve.watermark(channel, message.time)
                if message.time == MAX_WATERMARK:
                    self._follow_origins(self._origins.ended(channel))
                    self._announce_splits()
                await self._follow_inputs()
            case Idleness():
                self._valve.idleness(channel, idle=message.idle)
                self._look_for_idle()
                await self._follow_inputs()
            case Splits():
                self._follow_origins(self._origins.on_splits_announced(channel, message))
                self._announce_splits()
                await self._follow_inputs()
            case EndOfInput():
                self._ends.on_end_of_input(channel, holds=message.holds)
                self._valve.idleness(channel, idle=not message.holds)
                self._follow_origins(self._origins.at_end(channel))
                self._look_for_idle()
                await self._follow_inputs()
                await self._note_end_of_input()
            case EndOfData():
                self._ends.on_end_of_data(channel, drain=message.drain)
                await self._end_if_ended()
            case EndOfChannel():
                self._ends.on_exit(channel)
                decision = self._alignment.ended(channel, self._now())
                if self._newest is not None:
                    await self._follow(decision, self._newest)

    def _newest_of(self, barrier: Barrier) -> Barrier:
        """The newer one of this barrier and the newest so far, which decisions are about."""
        if self._newest is None or barrier.checkpoint >= self._newest.checkpoint:
            self._newest = barrier
        return self._newest

    async def _follow(self, decision: Aligned, barrier: Barrier) -> None:
        if decision.unblock:
            self.gate.unblock()
        if decision.complete and barrier.before_end:
            await self._fire_all_begun()
        if decision.complete:
            await self._checkpoint(barrier, self._alignment.seen_at)
        elif decision.overtake:
            await self._checkpoint(replace(barrier, order="unaligned"), self._alignment.seen_at)
        else:
            self._reminder.remind(barrier, self._alignment.deadline)

    def _record_inputs(self, in_flight: InFlight) -> None:
        for channel, input_channel in zip(self.gate.channels, self._inputs, strict=True):
            if channel.number not in self._alignment.reached:
                channel.record(in_flight.checkpoint, in_flight.recorder(input_channel.id))

    async def _handle_input(self, batch: Batch) -> None:
        if self._row_fetches is None or self._row_fetches.are_over():
            await super()._handle_input(batch)
            return
        async for part in self._row_fetches.ready(batch):
            await super()._handle_input(part)

    async def _resume(self) -> None:
        if self._advancing is not None:
            self.parts.backend.event_time.advance(self._advancing)
        await super()._resume()

    async def _advance_watermark(self, time: int) -> None:
        """Let timers fire, with records in between; the last one's end forwards the watermark."""
        if self.watermark is not None and time <= self.watermark:
            return
        if self._firing is None:
            self._advancing = time
            await self._begin(self.parts.chain.watermark(time), time)
        elif self._advancing is None or time > self._advancing:
            self._advancing = time
            self.parts.backend.event_time.advance(time)  # what is late is late at once

    async def _begin(self, batches: Iterator[Batch], limit: int | None) -> None:
        """Fire timers up to the first pause: mostly that is all there is."""
        self._firing = FiringPass(batches, limit, self._now())
        await self._fire_step(self._firing)

    async def _fire_step(self, firing: FiringPass) -> None:
        for batch in firing.batches:
            await self._emit((batch,))
            if batch is PAUSE:
                return
        self._firing = None
        if firing.limit is not None:
            await self._fired(firing.limit)

    async def _fire_on(self, firing: FiringPass) -> None:
        """One more step of a pass; after the last one, what has waited for it."""
        work = self.parts.output.work
        busy_s = work.busy_s
        with work.working():
            await self._fire_step(firing)
            if self._firing is None:
                await self._catch_up()
        firing.step_took(work.busy_s - busy_s)
        await self._rest()

    async def _fire_all_begun(self) -> None:
        """Let all timers fire that are due before the input has ended."""
        while self._firing is not None:
            await self._fire_on(self._firing)

    async def _catch_up(self) -> None:
        """Begin what came while timers fired."""
        if self._ticks_next:
            self._ticks_next = False
            await self._tick(self.parts.effects.clock.now_ms())
        if self._advancing is not None:
            await self._advance_watermark(self._advancing)
        if self._firing is None:
            await self._follow_inputs()
            await self._note_end_of_input()
            await self._end_if_ended()

    async def _note_end_of_input(self) -> None:
        """All input was handled on all channels, and all timers have fired that are due."""
        if self._ends.at_end and self._firing is None and not self._at_end:
            self._at_end = True
            keeps = self.parts.keyed and (self.records_in > 0 or self.parts.restored is not None)
            await self.parts.output.announce(EndOfInput(keeps or self._ends.holds))
            self.parts.listener.at_end(self.id)

    async def _end_if_ended(self) -> None:
        """End when all channels have, and all timers have fired."""
        if self._ends.ended and self._firing is None and not self._data_ended:
            await self._end(drain=self._ends.drained)

    async def _set_idle(self, idle: bool) -> None:
        # Not before the watermark that is fired for: others would go on without it. Nor at the end
        # of the input: whether others go on then is decided by what is held here.
        if not (idle and (self._firing or self._ends.at_end)):
            await super()._set_idle(idle)

    async def _between_steps(self) -> None:
        while (received := await self.gate.interruption()) is not None:
            await self._handle(received)

    async def _follow_inputs(self) -> None:
        """Event time or idleness at an input has changed."""
        time = self._valve.time
        if self._origins.exhausted and time != MAX_WATERMARK:
            if self._firing is not None:
                return  # what fires comes before the end
            # Channels that bring no records go on, maybe for long. This is not kept as what the
            # task has reached: in another shape records may come here.
            if not self._said_exhausted:
                self._said_exhausted = True
                await self.parts.output.announce(Watermark(MAX_WATERMARK))
            return
        if self.parts.chain.event_time is not None:
            if time == MAX_WATERMARK:
                await self._advance_watermark(time)
            await self._make_watermark()
            return
        if time is not None:
            await self._advance_watermark(time)
        await self._set_idle(self._valve.idle)

    def _follow_origins(self, changes: OriginChanges) -> None:
        """Origins have begun at the inputs, or ended."""
        event_time, now = self.parts.chain.event_time, self._now()
        if event_time is not None:
            for origin in changes.started_origins:
                self._waits.on_activity(origin, now)
            for origin in changes.ended_origins:
                event_time.forget(origin)
                self._waits.on_end(origin)
        self.parts.output.splits_changed(*changes)

    def _announce_splits(self, current: Origin | None = None) -> None:
        announces = self._tracks_origins and self.parts.output.announces_splits
        if announces and self._origins.complete and not self._origins.exhausted:
            self.parts.output.announce_splits(current)

    def _look_for_idle(self) -> None:
        """Find origins that event time is not to wait for, or for which it is to wait again."""
        event_time, now = self.parts.chain.event_time, self._now()
        if event_time is None:
            return
        for channel, origin in self._origins.unannounced:
            # What is idle for an event time in front is not for this one: it has its own splits.
            if self._waits.is_unfinished(origin):
                self._waits.set_idle(origin, now, idle=self._valve.is_idle(channel))
        idle_after_ms = event_time.options.idle_after_ms
        if idle_after_ms is not None:
            for quiet in self._waits.quiet_since(now - idle_after_ms / 1000):
                if self.gate.channels[channel_of(quiet)].head is None:
                    self._waits.set_idle(quiet, now, idle=True)

    async def _make_watermark(self, read_from: Origin | None = None) -> None:
        """Advance the watermark that is made of the records seen; idle inputs do not count."""
        event_time = self.parts.chain.event_time
        if event_time is None:
            return
        unfinished = read_from is not None and self._waits.is_unfinished(read_from)
        if event_time.was_active() and unfinished:
            self._waits.on_activity(read_from, self._now())
        if not self._origins.complete:
            return
        watermark = self._waits.mark
        if watermark is not None:
            await self._advance_watermark(watermark)
        await self._set_idle(not self._waits.holds and not self._origins.exhausted)
