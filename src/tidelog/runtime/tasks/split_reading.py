"""One split while its task reads it.

Invariants: the task never waits for a read that blocks: it takes what the read has handed over so
far; a position belongs to the records that were taken with it; what a thread has read and the task
has not taken is read again after a restart.
"""

import asyncio
import math
import threading
from collections import deque
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Final

from tidelog.effects import Effects
from tidelog.errors import require
from tidelog.runtime.channels.buffers import bytes_of
from tidelog.runtime.source import Source, SplitReader
from tidelog.runtime.user_code import close_all, user_code

IDLE_S: Final = 0.1
"""How long a split without records is left alone when its reader does not say."""

_LONG_DELAY_S: Final = 1.0

BATCH_RECORDS: Final = 8192
"""Records that a batch of several splits aims at, and that a thread reads ahead of the task."""
BATCH_BYTES: Final = 1 << 20
"""Bytes of records from which on a batch, and a thread, take no more: the words of so much text are
counted in a turn."""

PATIENCE_S: Final = 0.02
"""How long a task waits for the threads that read before other splits have their turn."""


@dataclass(frozen=True, slots=True)
class ReadChunk:
    """What reads have given: records, the position after them, and whether the split ends there."""

    records: list[Any]
    position: Any
    at_end: bool = False
    size_bytes: int = 0
    """About the bytes of the records, if a thread has read them."""
    read_at: float = 0.0
    """When the first of them were read, on the monotonic clock."""


InLoop = Callable[[Callable[[], None]], object]
"""Calls a function in the event loop, from a thread."""


class SplitReading:
    """Reads one split from a position, in the event loop or in a thread."""

    def __init__(
        self,
        split: str,
        source: Source,
        position: Any,
        task: str,
        effects: Effects,
        listener: Callable[[], None],
    ) -> None:
        """`listener` is called, in the event loop, when the split may have something to read."""
        self.split = split
        self.due_at = -math.inf
        """When there may be something to read, on the monotonic clock."""
        self.quiet_since: float | None = None
        """When reads of the split began to give nothing, in seconds on the monotonic clock."""
        self.idle = False
        """The split has been quiet for so long that event time does not wait for it."""
        self.stored_position = position
        """The position that the task has stored."""
        self._source = source
        self._position = position
        self._task = task
        self._effects = effects
        self._listener = listener
        self._reader: SplitReader | None = None
        self._running: asyncio.Future[None] | None = None
        """The thread that reads this split, or is to read it after others."""
        self._after_others = False
        """The thread in `_running` reads other splits before this one."""
        self._read_out = False
        """The thread has done its part for this split."""
        self._failure: Exception | None = None
        self._chunks: deque[ReadChunk] = deque()
        self._closed = False
        self._in_thread = False
        self._turn = threading.Lock()
        """Guards `_closed`, `_in_thread` and `_running`: one thread at a time reads, and the reader
        is closed by the task, or by a thread that still reads when the task closes it."""

    @property
    def working(self) -> bool:
        return self._running is not None

    @property
    def handed(self) -> bool:
        """A thread has handed over what `take` gives."""
        return bool(self._chunks)

    @property
    def waits(self) -> bool:
        """The reader's thread has waited for records since the task last took some."""
        return self.working and not self.queued and self.due_at == math.inf

    @property
    def behind(self) -> bool:
        """The reader has said that there are records which it did not give yet."""
        return self._reader is not None and self._reader.behind

    @property
    def unread(self) -> int | None:
        """What the reader says of what waits behind its position."""
        return None if self._reader is None else self._reader.unread

    @property
    def may_begin(self) -> bool:
        """No thread reads the split, and the task has taken what was read."""
        return self._running is None and not self._chunks

    @property
    def queued(self) -> bool:
        """A thread is to read the split, and reads others before it."""
        return self.working and self._after_others and not (self._in_thread or self._read_out)

    def take(self) -> ReadChunk | None:
        """The records read so far; None: nothing yet. Raises what the source raised."""
        portion = self._taken() if self._source.blocking else self._read(self._opened())
        if portion is None and not self.working:
            return None  # a thread that read as much as it may: the next one goes on
        if portion is None or not (portion.records or portion.at_end):
            pause = self._reader.delay_s if self._reader is not None else 0.0
            wait = math.inf if self.working else pause or IDLE_S
            self.due_at = self._effects.clock.monotonic() + wait
        return portion

    def on_activity(self) -> None:
        """The split gave records that count for event time."""
        self.quiet_since, self.idle = None, False

    def on_silence(self, idle_after_ms: int | None) -> None:
        """A read of the split gave no records, or has not returned yet."""
        now = self._effects.clock.monotonic()
        if self.quiet_since is None:
            self.quiet_since = now
        idle_at = self.idle_at(idle_after_ms)
        self.idle = idle_at is not None and now >= idle_at

    def idle_at(self, idle_after_ms: int | None) -> float | None:
        """When the split is idle if it gives nothing until then; None: it is not quiet."""
        if self.quiet_since is None or idle_after_ms is None:
            return None
        return self.quiet_since + idle_after_ms / 1000

    def ask_again(self) -> None:
        """Let the next read come at once: the split may have records before its delay ends. One
        whose reader has a long delay is left to it: there may be thousands of those.
        """
        if not self.working and self.due_at - self._effects.clock.monotonic() <= _LONG_DELAY_S:
            self.due_at = -math.inf

    def pause(self) -> None:
        """Other splits are read for a while: let the reader release scarce resources."""
        if self._reader is not None and not self.working:
            with user_code(self._task):
                self._reader.pause()

    def close(self) -> None:
        """Release the reader, or let the thread that uses it do so when it is done."""
        with self._turn:
            waits = self._closed or self._in_thread
            self._closed = True
        if not waits:
            self._close()

    def _close(self) -> None:
        if self._reader is not None:
            with user_code(self._task):
                self._reader.close()

    def _ask(self) -> None:
        """The split may have something: let the task read it soon."""
        self.due_at = -math.inf
        self._listener()

    def _taken(self) -> ReadChunk | None:
        """All that the thread has handed over."""
        running = self._running
        if running is not None and (self._read_out or running.done()):
            self._running = None
            if running.done():
                running.result()
            if self._failure is not None:
                raise self._failure
            if self._reader is not None:
                self._reader.notify(self._ask)
        portions: list[ReadChunk] = []
        while self._chunks:
            portions.append(self._chunks.popleft())
        if not portions:
            return None
        if len(portions) == 1:
            return portions[0]
        records = list(chain.from_iterable(portion.records for portion in portions))
        size = sum(portion.size_bytes for portion in portions)
        last = portions[-1]
        return ReadChunk(records, last.position, last.at_end, size, portions[0].read_at)

    def begun(self, running: "asyncio.Future[None]", *, after_others: bool) -> bool:
        """The thread `running` is to read this split, after others if it reads any before.

        It takes the place of a thread in which the split only waits for its turn.

        False: another thread has come to it meanwhile.
        """
        with self._turn:
            if not (self.may_begin or self.queued):
                return False
            self._running, self._after_others, self._read_out = running, after_others, False
            return True

    def ask_after(self, running: "asyncio.Future[None]") -> None:
        """Wake the task: the thread `running` has read a part of its splits, or has ended."""
        if self._running is not running:
            return
        succeeded = running.done() and not running.cancelled() and running.exception() is None
        if succeeded and not self._read_out:
            self._running = None  # it did not come to this split
        self._ask()

    def work(self, running: "asyncio.Future[None]", in_loop: InLoop) -> tuple[int, int]:
        """In that thread: read until there is nothing, or as much as may be read ahead.

        Returns how many records and bytes that were; `take` raises what the source raised.
        """
        with self._turn:
            if self._closed or self._running is not running:
                return 0, 0
            self._in_thread = True
        try:
            return self._read_on(in_loop)
        except Exception as error:
            self._failure = error
            return 0, 0
        finally:
            with self._turn:
                self._in_thread, self._read_out = False, True
                closed = self._closed
            if closed:
                close_all(self._task, [self._close], quietly=True)

    def _read_on(self, in_loop: InLoop) -> tuple[int, int]:
        reader, read, size = self._opened(), 0, 0
        while True:
            portion = self._read(reader, in_thread=True)
            self._chunks.append(portion)
            read, size = read + len(portion.records), size + portion.size_bytes
            if not portion.records or portion.at_end or not reader.trickles or self._closed:
                return read, size
            if read >= BATCH_RECORDS or size >= BATCH_BYTES:
                return read, size
            if len(self._chunks) == 1:  # otherwise the task was asked, and has not come yet
                in_loop(self._ask)

    def _opened(self) -> SplitReader:
        if self._reader is None:
            with user_code(self._task):
                reader = self._source.open(self.split, self._position)
                is_one = isinstance(reader, SplitReader)
                require(f"the reader of split {self.split!r}", reader, is_one, "a SplitReader")
                self._reader = reader
            if not self._source.blocking:
                self._reader.notify(self._ask)
        return self._reader

    def _read(self, reader: SplitReader, *, in_thread: bool = False) -> ReadChunk:
        with user_code(self._task):
            result = reader.read()
            if not isinstance(result, list):
                _check_read(result)
            records, at_end = result or [], result is None or reader.at_end
            name, has_one = f"the reader of split {self.split!r}", hasattr(reader, "position")
            require(name, "none", has_one, "a `position` of it, which checkpoints store")
            # A reader may go on in the same object, such as a dict of offsets.
            position, size = deepcopy(reader.position), reader.read_bytes
        if size is None:
            size = bytes_of(records) if in_thread else 0
        return ReadChunk(records, position, at_end, size, self._effects.clock.monotonic())


def _check_read(result: object) -> None:
    """Raises TypeError for what is no sequence of records: a generator, a coroutine, one record."""
    if not isinstance(result, Sequence | None) or isinstance(result, str | bytes):
        kind = type(result).__name__
        raise TypeError(f"read() returned a {kind}, not a list of records or None at the end")


def read_in_thread(readings: Sequence[SplitReading], effects: Effects) -> "asyncio.Future[None]":
    """Let one thread read these splits of a blocking source, one after the other.

    It ends early when it has read a batch; those that it did not come to may begin again.
    """
    in_loop, now = asyncio.get_running_loop().call_soon_threadsafe, effects.clock.monotonic
    hurry_at = now() + PATIENCE_S

    def read_all() -> None:
        records = size = 0
        for reading in readings:
            read_records, read_bytes = reading.work(running, in_loop)
            records, size = records + read_records, size + read_bytes
            if records >= BATCH_RECORDS or size >= BATCH_BYTES:
                return
            if now() >= hurry_at:  # the task does not wait for the others: what is here goes on
                in_loop(partial(reading.ask_after, running))

    running = asyncio.ensure_future(effects.offload.wait(read_all))

    def ended(_: object) -> None:
        for reading in readings:
            reading.ask_after(running)

    readings = [
        reading
        for index, reading in enumerate(readings)
        if reading.begun(running, after_others=index > 0)
    ]
    running.add_done_callback(ended)
    return running
