"""One split while its task reads it.

Invariants: the task never waits for a read that blocks: it takes what the read has handed over so
far; a position belongs to the records that were taken with it; what a thread has read and the task
has not taken is read again after a restart.
"""

import asyncio
import math
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tidelog.effects import Effects
from tidelog.runtime.channels.buffers import bytes_of
from tidelog.runtime.source import Source, SplitReader
from tidelog.runtime.user_code import blame, close_all

IDLE_S: Final = 0.1
"""How long a split without records is left alone when its reader does not say."""

_AHEAD: Final = 1024
"""Records that a thread reads ahead of the task ..."""
_AHEAD_BYTES: Final = 1 << 20
"""... and bytes from which on it does not."""


@dataclass(frozen=True, slots=True)
class Portion:
    """What reads have given: records, the position after them, and whether the split ends there."""

    records: list[Any]
    position: Any
    ended: bool = False


class SplitReading:
    """Reads one split from a position, in the event loop or in a thread."""

    def __init__(
        self, split: str, source: Source, position: Any, task: str, effects: Effects
    ) -> None:
        self.split = split
        self.due_at = -math.inf
        """When there may be something to read, on the monotonic clock."""
        self.quiet_since: float | None = None
        """When reads of the split began to give nothing, in seconds on the monotonic clock."""
        self.idle = False
        """The split has been quiet for so long that event time does not wait for it."""
        self._source = source
        self._position = position
        self._task = task
        self._effects = effects
        self._listener: Callable[[], None] = _nobody
        self._reader: SplitReader | None = None
        self._running: asyncio.Task[None] | None = None
        self._handed: deque[Portion] = deque()
        self._closed = False
        self._in_thread = False
        self._turn = threading.Lock()
        """Guards `_closed` and `_in_thread`: the reader is closed by the task, or by a thread that
        still reads when the task closes it."""

    def notify(self, listener: Callable[[], None]) -> None:
        """Call `listener`, in the event loop, when the split may have something to read."""
        self._listener = listener

    @property
    def working(self) -> bool:
        """A thread reads the split."""
        return self._running is not None

    @property
    def handed(self) -> bool:
        """A thread has handed over what `take` gives."""
        return bool(self._handed)

    @property
    def waits(self) -> bool:
        """The reader's thread has waited for records since the task last took some."""
        return self.working and self.due_at == math.inf

    def begin(self) -> None:
        """Start a thread that reads the split of a blocking source, unless one reads already."""
        if self._running is None and not self._handed:
            loop = asyncio.get_running_loop()
            self._running = asyncio.ensure_future(
                self._effects.offload.wait(self._work, loop.call_soon_threadsafe)
            )
            self._running.add_done_callback(lambda _: self._ask())

    def take(self) -> Portion | None:
        """The records read so far; None: nothing yet. Raises what the source raised."""
        portion = self._taken() if self._source.blocking else self._read(self._opened())
        if portion is None and not self.working:
            return None  # a thread that read as much as it may: the next one goes on
        if portion is None or not (portion.records or portion.ended):
            pause = self._reader.delay_s if self._reader is not None else 0.0
            wait = math.inf if self.working else pause or IDLE_S
            self.due_at = self._effects.clock.monotonic() + wait
        return portion

    def heard(self) -> None:
        """The split gave records that count for event time."""
        self.quiet_since, self.idle = None, False

    def not_heard(self, idle_after_ms: int | None) -> None:
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
        """Let the next read come at once: the split may have records before its delay is over."""
        if not self.working:
            self.due_at = -math.inf

    def pause(self) -> None:
        """Other splits are read for a while: let the reader release scarce resources."""
        if self._reader is not None and not self.working:
            with blame(self._task):
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
            with blame(self._task):
                self._reader.close()

    def _ask(self) -> None:
        """The split may have something: let the task read it soon."""
        self.due_at = -math.inf
        self._listener()

    def _taken(self) -> Portion | None:
        """All that the thread has handed over."""
        running = self._running
        if running is not None and running.done():
            self._running = None
            running.result()
            if self._reader is not None:
                self._reader.notify(self._ask)
        portions: list[Portion] = []
        while self._handed:
            portions.append(self._handed.popleft())
        if not portions:
            return None
        records = [record for portion in portions for record in portion.records]
        return Portion(records, portions[-1].position, portions[-1].ended)

    def _work(self, in_loop: Callable[[Callable[[], None]], object]) -> None:
        """In a thread: read until there is nothing, or as much as may be read ahead."""
        with self._turn:
            if self._closed:
                return
            self._in_thread = True
        try:
            self._read_on(in_loop)
        finally:
            with self._turn:
                self._in_thread = False
                left = self._closed
            if left:
                close_all(self._task, [self._close], quietly=True)

    def _read_on(self, in_loop: Callable[[Callable[[], None]], object]) -> None:
        reader, read, size = self._opened(), 0, 0
        while True:
            portion = self._read(reader)
            self._handed.append(portion)
            if not portion.records or portion.ended or not reader.trickles or self._closed:
                return
            read, size = read + len(portion.records), size + bytes_of(portion.records)
            if read >= _AHEAD or size >= _AHEAD_BYTES:
                return
            if len(self._handed) == 1:  # otherwise the task was asked, and has not come yet
                in_loop(self._ask)

    def _opened(self) -> SplitReader:
        if self._reader is None:
            with blame(self._task):
                self._reader = self._source.open(self.split, self._position)
            if not self._source.blocking:
                self._reader.notify(self._ask)
        return self._reader

    def _read(self, reader: SplitReader) -> Portion:
        with blame(self._task):
            records = reader.read()
            return Portion(records or [], reader.position, records is None or reader.at_end)


def _nobody() -> None:
    """The listener of a split before its task has set one."""
