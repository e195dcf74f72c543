"""One split while its task reads it: in the event loop, or ahead of the task in a thread.

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
from enum import Enum, auto
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


class Phase(Enum):
    """Who reads a split now. A split of a source that does not block is FREE until it is CLOSED.

    FREE -> SCHEDULED or QUEUED: `schedule`; QUEUED also goes to another thread that comes sooner
    SCHEDULED, QUEUED -> READING -> READ: `read_ahead` begins and ends
    SCHEDULED, QUEUED -> FREE: `on_progress`, when the thread has ended before it came to the split
    READ -> FREE: `take`
    READING -> CLOSING -> CLOSED: `close`, then the end of `read_ahead`; all others -> CLOSED
    """

    FREE = auto()
    """The task: it may read, or schedule a thread."""
    QUEUED = auto()
    """Nobody: the thread reads other splits first."""
    SCHEDULED = auto()
    """Nobody yet: the thread begins with this split."""
    READING = auto()
    """The thread."""
    READ = auto()
    """Nobody: the thread is done with this split, and the task has not noticed it."""
    CLOSING = auto()
    """The thread, which is to close the reader: the task is done with the split."""
    CLOSED = auto()


_FREE, _QUEUED, _SCHEDULED, _READING, _READ, _CLOSING, _CLOSED = Phase  # looked up once
_BEFORE_READING: Final = (_SCHEDULED, _QUEUED)
_WITH_THREAD: Final = (_READING, _READ, *_BEFORE_READING)

ReadThread = asyncio.Future[None]
"""The end of a thread that reads splits."""
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
        self.idle = False
        """The split has been quiet for so long that event time does not wait for it."""
        self.stored_position = position
        """The position that the task has stored."""
        self._quiet_since: float | None = None
        """When reads of the split began to give nothing, in seconds on the monotonic clock."""
        self._source = source
        self._position = position
        self._task = task
        self._now = effects.clock.monotonic
        self._listener = listener
        self._reader: SplitReader | None = None
        self._phase = _FREE
        self._thread: ReadThread | None = None
        """The thread of the phases from SCHEDULED to READ."""
        self._lock = threading.Lock()
        """Held for each change of the phase that a thread makes, or that depends on what a thread
        does: one at a time reads, and either the task or a thread closes the reader."""
        self._failure: Exception | None = None
        self._chunks: deque[ReadChunk] = deque()
        """What threads have read and the task has not taken."""

    @property
    def has_chunks(self) -> bool:
        """A thread has handed over what `take` gives."""
        return bool(self._chunks)

    @property
    def has_thread(self) -> bool:
        """A thread reads the split, or is to."""
        return self._phase in _WITH_THREAD

    @property
    def is_queued(self) -> bool:
        """A thread is to read the split, and reads others before it."""
        return self._phase is _QUEUED

    @property
    def is_free(self) -> bool:
        """No thread reads the split, and the task has taken what was read."""
        return self._phase is _FREE and not self._chunks

    @property
    def waits_for_records(self) -> bool:
        """A thread reads, and had nothing when the task last looked."""
        return self.due_at == math.inf and self.has_thread and self._phase is not _QUEUED

    @property
    def has_lag(self) -> bool:
        """The reader has said that there are records which it did not give yet."""
        return self._reader is not None and self._reader.has_lag

    @property
    def unread(self) -> int | None:
        """What the reader says of what waits behind its position."""
        return None if self._reader is None else self._reader.unread

    def take(self) -> ReadChunk | None:
        """The records read so far; None: nothing yet. Raises what the source raised."""
        chunk = self._take_chunks() if self._source.blocking else self._read(self._open_reader())
        if chunk is None and not self.has_thread:
            return None  # a thread that read as much as it may: the next one goes on
        if chunk is None or not (chunk.records or chunk.at_end):
            pause = self._reader.delay_s if self._reader is not None else 0.0
            self.due_at = math.inf if self.has_thread else self._now() + (pause or IDLE_S)
        return chunk

    def _take_chunks(self) -> ReadChunk | None:
        """All that the thread has handed over."""
        thread = self._thread
        if thread is not None and (self._phase is _READ or thread.done()):
            if thread.done():
                thread.result()
            if self._failure is not None:
                raise self._failure
            # The end of this thread asks for nothing any more: the split has its turn by itself.
            self._phase, self._thread, self.due_at = _FREE, None, -math.inf
            if self._reader is not None:
                self._reader.set_listener(self._ask)
        chunks: list[ReadChunk] = []
        while self._chunks:
            chunks.append(self._chunks.popleft())
        if not chunks:
            return None
        if len(chunks) == 1:
            return chunks[0]
        records = list(chain.from_iterable(chunk.records for chunk in chunks))
        size = sum(chunk.size_bytes for chunk in chunks)
        last = chunks[-1]
        return ReadChunk(records, last.position, last.at_end, size, chunks[0].read_at)

    def on_activity(self) -> None:
        """The split gave records that count for event time."""
        self._quiet_since, self.idle = None, False

    def on_silence(self, idle_after_ms: int | None) -> None:
        """A read of the split gave no records, or has not returned yet."""
        now = self._now()
        if self._quiet_since is None:
            self._quiet_since = now
        idle_at = self.idle_at(idle_after_ms)
        self.idle = idle_at is not None and now >= idle_at

    def idle_at(self, idle_after_ms: int | None) -> float | None:
        """When the split is idle if it gives nothing until then; None: it is not quiet."""
        if self._quiet_since is None or idle_after_ms is None:
            return None
        return self._quiet_since + idle_after_ms / 1000

    def ask_again(self) -> None:
        """Let the next read come at once: the split may have records before its delay ends. One
        whose reader has a long delay is left to it: there may be thousands of those.
        """
        if not self.has_thread and self.due_at - self._now() <= _LONG_DELAY_S:
            self.due_at = -math.inf

    def pause(self) -> None:
        """Other splits are read for a while: let the reader release scarce resources."""
        if self._reader is not None and not self.has_thread:
            with user_code(self._task):
                self._reader.pause()

    def close(self) -> None:
        """Release the reader, or let the thread that uses it do so when it is done."""
        with self._lock:
            phase = self._phase
            if phase is _CLOSED:
                return
            in_use = phase is _READING or phase is _CLOSING
            self._phase = _CLOSING if in_use else _CLOSED
        if not in_use:
            self._close_reader()

    def _close_reader(self) -> None:
        if self._reader is not None:
            with user_code(self._task):
                self._reader.close()

    def _ask(self) -> None:
        """The split may have something: let the task read it soon."""
        self.due_at = -math.inf
        self._listener()

    def schedule(self, thread: ReadThread, *, after_others: bool) -> bool:
        """Let a thread read this split; `after_others`: it reads some before.

        False: the split is not free, and no longer queued in another thread.
        """
        with self._lock:
            if self._phase is not _QUEUED and (self._phase is not _FREE or self._chunks):
                return False
            self._thread, self._phase = thread, _QUEUED if after_others else _SCHEDULED
            return True

    def on_progress(self, thread: ReadThread) -> None:
        """Wake the task: a thread has read a part of its splits, or has ended."""
        if self._thread is not thread:
            return
        succeeded = thread.done() and not thread.cancelled() and thread.exception() is None
        if succeeded and self._phase in _BEFORE_READING:
            self._phase, self._thread = _FREE, None
        self._ask()

    def read_ahead(self, thread: ReadThread, in_loop: InLoop) -> tuple[int, int]:
        """In that thread: read until there is nothing, or as much as may be read ahead.

        Returns how many records and bytes that were; `take` raises what the source raised.
        """
        with self._lock:
            if self._thread is not thread or self._phase not in _BEFORE_READING:
                return 0, 0
            self._phase = _READING
        try:
            return self._read_batch(in_loop)
        except Exception as error:
            self._failure = error
            return 0, 0
        finally:
            with self._lock:
                closes = self._phase is _CLOSING
                self._phase = _CLOSED if closes else _READ
            if closes:
                close_all(self._task, [self._close_reader], quietly=True)

    def _read_batch(self, in_loop: InLoop) -> tuple[int, int]:
        reader, count, size = self._open_reader(), 0, 0
        while True:
            chunk = self._read(reader, in_thread=True)
            self._chunks.append(chunk)
            count, size = count + len(chunk.records), size + chunk.size_bytes
            if not reader.reads_single_records or count >= BATCH_RECORDS or size >= BATCH_BYTES:
                return count, size
            if not chunk.records or chunk.at_end or self._phase is _CLOSING:
                return count, size
            if len(self._chunks) == 1:  # otherwise the task was asked, and has not come yet
                in_loop(self._ask)

    def _open_reader(self) -> SplitReader:
        if self._reader is None:
            with user_code(self._task):
                reader = self._source.open(self.split, self._position)
                is_one = isinstance(reader, SplitReader)
                require(f"the reader of split {self.split!r}", reader, is_one, "a SplitReader")
                self._reader = reader
            if not self._source.blocking:
                self._reader.set_listener(self._ask)
        return self._reader

    def _read(self, reader: SplitReader, *, in_thread: bool = False) -> ReadChunk:
        with user_code(self._task):
            result = reader.read()
            if not isinstance(result, list):
                _check_read(result)
            records, at_end = result or [], result is None or reader.at_end
            if not hasattr(reader, "position"):
                name = f"the reader of split {self.split!r}"
                require(name, "none", False, "a `position` of it, which checkpoints store")
            # A reader may go on in the same object, such as a dict of offsets.
            position, size = deepcopy(reader.position), reader.read_bytes
        if size is None:
            size = bytes_of(records) if in_thread else 0
        return ReadChunk(records, position, at_end, size, self._now())


def _check_read(result: object) -> None:
    """Raises TypeError for what is no sequence of records: a generator, a coroutine, one record."""
    if not isinstance(result, Sequence | None) or isinstance(result, str | bytes):
        kind = type(result).__name__
        raise TypeError(f"read() returned a {kind}, not a list of records or None at the end")


def read_in_thread(readings: Sequence[SplitReading], effects: Effects) -> ReadThread:
    """Let one thread read these splits of a blocking source, one after the other.

    It ends early when it has read a batch; those that it did not come to are free again.
    """
    in_loop, now = asyncio.get_running_loop().call_soon_threadsafe, effects.clock.monotonic
    hurry_at = now() + PATIENCE_S

    def read_all() -> None:
        records = size = 0
        for reading in readings:
            read_records, read_bytes = reading.read_ahead(thread, in_loop)
            records, size = records + read_records, size + read_bytes
            if records >= BATCH_RECORDS or size >= BATCH_BYTES:
                return
            if now() >= hurry_at:  # the task does not wait for the others: what is here goes on
                in_loop(partial(reading.on_progress, thread))

    thread = asyncio.ensure_future(effects.offload.wait(read_all))
    for index, reading in enumerate(readings):
        reading.schedule(thread, after_others=index > 0)

    def wake(thread: ReadThread) -> None:
        for reading in readings:
            reading.on_progress(thread)

    thread.add_done_callback(wake)
    return thread
