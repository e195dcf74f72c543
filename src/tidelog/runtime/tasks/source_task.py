"""Source tasks: read splits in turn, keep their positions as keyed state, start the barriers.

Invariants: a split's position changes together with the emission of the records before it, with
no barrier in between; nothing that a source does keeps a barrier waiting; the watermark is the
least one of all unfinished splits, those not begun included.
"""

import asyncio
import itertools
import math
from collections import deque
from collections.abc import Callable

from tidelog.effects import wait_for
from tidelog.ids import CheckpointId
from tidelog.runtime.channels.messages import Barrier, Batch, EndOfInput, LatencyMarker
from tidelog.runtime.operators.progress import MARKERS_EVERY_S
from tidelog.runtime.operators.turn import SHORTER
from tidelog.runtime.source import Source
from tidelog.runtime.tasks.split_discovery import SPLITS_IN_A_TURN, SplitDiscovery
from tidelog.runtime.tasks.split_reading import PATIENCE_S, ReadChunk, SplitReading
from tidelog.runtime.tasks.split_turns import SplitTurns
from tidelog.runtime.tasks.splits import SourceSplits, SplitPositions, StoredSplit
from tidelog.runtime.tasks.task import Task
from tidelog.runtime.tasks.task_checkpoints import TaskParts
from tidelog.runtime.tasks.watermarks import LeastWatermark, combined
from tidelog.runtime.user_code import close_all, user_code


class SourceTask(Task):
    """Reads the splits of one subtask in turn."""

    is_source = True

    def __init__(
        self,
        parts: TaskParts,
        source: Source,
        splits: SourceSplits,
        *,
        waits: bool = False,
        ends: bool = False,
    ) -> None:
        """`ends`: the job has reached its end in the restored checkpoint, so nothing is read."""
        super().__init__(parts)
        self._waits = waits
        """Nothing is read before `begin`."""
        self._may_end = ends
        self._source = source
        self._splits = splits
        self._alignment = splits.alignment
        self._positions = SplitPositions(parts.backend)
        splits.join(resumes=any(True for _ in self._positions.stored_splits()))
        self._barriers: deque[Barrier] = deque()
        self._wake = asyncio.Event()
        self._reads = SplitTurns(
            parts.effects,
            shares_threads=source.blocking and source.reads_without_waiting,
            max_active_splits=source.max_active_splits,
        )
        self._holding = LeastWatermark()
        """The watermarks of the unfinished splits that are not idle."""
        self._discovery = SplitDiscovery(
            self.id.operator, splits, self._positions, parts.effects, self._wake.set
        )
        self._has_discovered = False  # and all splits of the first discovery were added
        self._draining = False
        self._event_time = parts.chain.event_time
        self._idle_after_ms = self._event_time.options.idle_after_ms if self._event_time else None
        self._mixes_splits = self._event_time is None and not parts.output.announces_splits
        """Nothing asks which split a record is of: a batch may hold those of several."""
        self._standstills = parts.output.work.standstills
        self._marker_at = -math.inf
        """When the next marker is due: it follows records that are read then."""
        parts.output.notify(self._wake.set)

    @property
    def splits(self) -> int:
        return len(self._reads)

    @property
    def idle_splits(self) -> int:
        return len(self._reads) - len(self._holding)

    @property
    def unread(self) -> int | None:
        amounts = [amount for reading in self._reads if (amount := reading.unread) is not None]
        return sum(amounts) if amounts else None

    @property
    def skipped(self) -> int:
        return self._source.skipped

    def _start(self, barrier: Barrier) -> None:
        """Let the barrier follow the records read so far."""
        self._barriers.append(barrier)
        self._wake.set()

    def begin(self) -> None:
        self._waits = False
        self._wake.set()

    def drain(self) -> None:
        self._draining = True
        self._wake.set()

    def abort(self, checkpoint: CheckpointId) -> None:
        super().abort(checkpoint)
        self._wake.set()

    async def complete(self, checkpoint: CheckpointId) -> None:
        await super().complete(checkpoint)
        positions = self._positions.on_complete(checkpoint)
        if positions:
            with user_code(self.id.operator):
                self._source.on_checkpoint_complete(positions)

    def _wake_up(self) -> None:
        self._wake.set()

    async def run(self) -> None:
        clock = self.parts.effects.clock
        succeeded = False
        self._standstills.begin()
        try:
            await self._resume()
            while self._waits and await self._goes_on():
                if self._waits:  # still, after barriers
                    await self._pause(None)
            while await self._goes_on():
                if not self.parts.output.available:
                    await self._wait_for_room()
                elif await self._step():
                    break
                await clock.sleep(0)
            self._leave_alignment()
            self._standstills.starve()
            await self._wait_for_end()
            # A job that was stopped otherwise goes on some day.
            await self._end(drain=not self._leaving)
            await self._handle_barriers_until(lambda: self._leaving)
            await self._exit()
            succeeded = True
        finally:
            self._leave_alignment()
            self._discovery.cancel()
            try:
                close_all(str(self.id), (r.close for r in self._reads), quietly=not succeeded)
                await self._splits.leave()
            finally:
                await self._stop()

    async def _goes_on(self) -> bool:
        """Whether to read more, after checkpoints that are due."""
        await self._handle_barriers()
        # What happens from here on sets it again; what happened before is looked at below.
        self._wake.clear()
        return not (self._leaving or self._draining or self._may_end)

    def end(self) -> None:
        self._may_end = True
        self._wake.set()

    async def _wait_for_end(self) -> None:
        """All is read: wait until the job may end."""
        if self._leaving or self._may_end:
            return
        await self.parts.output.announce(EndOfInput(holds=False))
        self.parts.listener.at_end(self.id, self._discovery.count)
        await self._handle_barriers_until(lambda: self._leaving or self._may_end)

    async def _handle_barriers_until(self, over: Callable[[], bool]) -> None:
        while not over():
            await self._handle_barriers()
            self._wake.clear()
            if not over():
                await self._wake.wait()

    async def _handle_barriers(self) -> None:
        while self._barriers or (self._stopping_with is not None and not self._leaving):
            if self._barriers:
                barrier = self._barriers.popleft()
                self._positions.on_barrier(barrier.checkpoint)
                await self._checkpoint(barrier, self._now())
                # Meanwhile there may be something to read.
                for reading in self._reads:
                    reading.ask_again()
            else:
                self._wake.clear()
                await self._wake.wait()

    async def _wait_for_room(self) -> None:
        """Wait until the output has room, or a barrier wants to pass."""
        if not self._barriers and not self.parts.output.available:
            with self.parts.output.work.waiting():
                await self._wake.wait()

    async def _step(self) -> bool:
        """Read one split once, or wait until there is something; True at the end of the data."""
        await self._discover_splits()
        if self._has_discovered and not self._reads and self._source.rediscover_s is None:
            return True
        reading = self._next()
        if reading is None:
            self._reads.begin_next()
            await self._notice_idle()
            await self._pause(self._until_due())
        else:
            await self._read(reading)
        return False

    async def _discover_splits(self) -> None:
        """Add the splits that a discovery has found, and start the next one when it is due."""
        new_splits = self._discovery.new_splits()
        if new_splits is None:
            return
        for number, split in enumerate(new_splits):
            if number % SPLITS_IN_A_TURN == SPLITS_IN_A_TURN - 1:
                await self._rest()
            if self._positions.owns(split) and split not in self._discovery.over:
                self._add(split, self._positions.find(split) or StoredSplit())
        if not self._has_discovered:
            self._has_discovered = True
            self._splits.on_first_discovery()
        await self._follow_splits()

    def _add(self, split: str, split_state: StoredSplit) -> None:
        position = split_state.position
        if position is None and self._splits.is_new(split):
            position = self._source.new_split_position
        effects, task = self.parts.effects, self.id.operator
        reading = SplitReading(split, self._source, position, task, effects, self._wake.set)
        begins = self._reads.add(reading)
        self.parts.output.splits_changed(started_splits=[split])
        if self._event_time is not None:
            if split_state.latest is not None:
                self._event_time.restore(split, split_state.latest)
            if begins:
                self._alignment.put(split, self._event_time.watermark_of(split))
        self._hold_watermark(reading)

    def _hold_watermark(self, reading: SplitReading) -> None:
        """Let a split hold back the watermark, unless the split is idle."""
        event_time, split = self._event_time, reading.split
        if reading.idle:
            self._holding.drop(split)
        else:
            self._holding.put(split, event_time.watermark_of(split) if event_time else None)

    def _next(self) -> SplitReading | None:
        """The next split in turn that may have something and is not too far ahead of others."""
        event_time = self._event_time
        if event_time is None:
            return self._reads.next(lambda _: True)
        latest = self._alignment.watermark() + event_time.options.max_ahead_ms

        def is_near(split: str) -> bool:
            watermark = event_time.watermark_of(split)
            if watermark is None or watermark <= latest:
                return True
            self._alignment.wake_on_change(self._wake.set)
            return False

        return self._reads.next(is_near)

    async def _read(self, reading: SplitReading) -> None:
        if self._source.blocking:
            self._reads.begin(reading)
        if self._reads.worth_waiting(reading, gathers=self._mixes_splits):
            await self._pause(PATIENCE_S)
        if not reading.has_chunks:
            self._reads.begin_next()  # storage is slow: more threads find it less so
        chunk = self._reads.take(reading)
        if chunk is not None and chunk.records:
            read = {reading: chunk}
            if self._mixes_splits:
                # A checkpoint under way waits for each batch that is handled before it.
                short = self.parts.chain.turn.short()
                self._reads.gather(read, 1 / SHORTER if short else 1)
            if not self._reads.busy:
                self._reads.begin_next(but=read)
            await self._emit_read(read)
        elif chunk is not None and chunk.at_end:
            self._finish_split(reading, chunk)
            await self._follow_splits()
        elif not reading.is_queued:
            if chunk is not None and chunk.position != reading.stored_position:
                self._store_position(reading, chunk)
            if not reading.has_lag:
                self._alignment.drop(reading.split)
                self._on_silence(reading)
            await self._follow_splits()

    async def _emit_read(self, read: dict[SplitReading, ReadChunk]) -> None:
        """Emit the records of one split, or of several where nothing asks which; keep positions."""
        chain, split = self.parts.chain, next(iter(read)).split
        records = list(itertools.chain.from_iterable(chunk.records for chunk in read.values()))
        if not self.records_in:
            self.parts.listener.found_input()
        self.records_in += len(records)
        self._standstills.arrived()
        with self.parts.output.work.working():
            chain.read_from(split)
            self._announce_splits(split)
            await self._handle_input(Batch(records))
            self._send_marker(read)
            for reading, chunk in read.items():
                self._store_progress(reading, chunk)
            # The last records of a split move event time, too.
            await self._follow_splits()
            last_chunks = [(reading, chunk) for reading, chunk in read.items() if chunk.at_end]
            for reading, chunk in last_chunks:
                self._finish_split(reading, chunk)
            if last_chunks:
                await self._follow_splits()
            await self._flush_if_due()

    def _send_marker(self, read: dict[SplitReading, ReadChunk]) -> None:
        """Send a marker behind these records, if one is due."""
        read_at = next(iter(read.values())).read_at
        if read_at >= self._marker_at:
            self._marker_at = read_at + MARKERS_EVERY_S
            oldest = min(chunk.read_at for chunk in read.values())
            self.parts.output.mark(LatencyMarker(oldest))

    def _store_progress(self, reading: SplitReading, chunk: ReadChunk) -> None:
        """Keep a split's position after records that were emitted, and how far they move time."""
        event_time, split = self._event_time, reading.split
        self._store_position(reading, chunk)
        if event_time is not None and event_time.was_active():
            reading.on_activity()
            self._alignment.put(split, event_time.watermark_of(split))
            self._hold_watermark(reading)
        else:
            # Records that are filtered out before they have a time move no watermark.
            self._alignment.drop(split)
            self._on_silence(reading)

    def _store_position(self, reading: SplitReading, chunk: ReadChunk) -> None:
        event_time, split = self._event_time, reading.split
        latest = event_time.latest(split) if event_time is not None else None
        self._positions.put(split, StoredSplit(False, chunk.position, latest))
        reading.stored_position = chunk.position

    def _finish_split(self, reading: SplitReading, chunk: ReadChunk) -> None:
        split = reading.split
        self._reads.remove(reading)
        self.parts.output.splits_changed(ended_splits=[split])
        self._holding.drop(split)
        self._positions.put(split, StoredSplit(True, chunk.position))
        self._alignment.drop(split)
        if self._event_time is not None:
            self._event_time.forget(split)

    async def _follow_splits(self) -> None:
        """Advance the watermark to that of the splits, and announce which splits are read."""
        if not self._reads and self._source.rediscover_s is None:
            return  # None are left: what follows is the end of the data, and no idleness.
        event_time = self._event_time
        if event_time is not None and self._reads:
            if self._holding:
                watermark = self._holding.mark
            else:
                watermark = combined((), self._reads.names, event_time.watermark_of)
            if watermark is not None:
                await self._advance_watermark(watermark)
        await self._set_idle(self._has_discovered and not self._holding)
        self._announce_splits(None)

    def _announce_splits(self, current: str | None) -> None:
        """Announce which splits are read to tasks that make watermarks of their records."""
        if self.parts.output.announces_splits and self._has_discovered:
            self.parts.output.announce_splits(current)

    def _on_silence(self, reading: SplitReading) -> None:
        reading.on_silence(self._idle_after_ms)
        self._hold_watermark(reading)

    async def _notice_idle(self) -> None:
        """Mark splits as idle whose reads have waited in their threads for too long."""
        for reading in self._reads:
            if reading.waits_for_records:
                self._on_silence(reading)
        await self._follow_splits()

    def _until_due(self) -> float | None:
        """Seconds until something is due; None: only an event can wake the task."""
        earliest = min(self._discovery.due_at, self._reads.due_at(self._idle_after_ms))
        return None if earliest == math.inf else max(0.0, earliest - self._now())

    def _leave_alignment(self) -> None:
        for reading in self._reads:
            self._alignment.drop(reading.split)

    async def _pause(self, seconds: float | None) -> None:
        """Wait for a barrier, a stop, something to read, or for time to pass."""
        if not self._barriers:
            self._standstills.starve()
            await wait_for(self._wake, self.parts.effects.clock, seconds)
            self._standstills.resume()
