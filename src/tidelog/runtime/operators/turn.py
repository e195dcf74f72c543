"""Turns: how long a task goes on before other tasks of the process run.

Invariant: between two looks at the turn an operator does a bounded piece of work: a portion of
records as long as records lately took, one timer, one buffer of output. So whatever a job does,
nothing but a single call of a user's function holds the event loop for much longer than a turn.

A checkpoint passes through the loop a dozen times, from the barrier to its manifest, and waits
for a turn of every task each time: while one is under way turns are short.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice, repeat
from typing import Any, Final

from tidelog.runtime.channels.buffers import bytes_of
from tidelog.runtime.channels.messages import Batch

TURN_S: Final = 0.01
_SHORT: Final = 8
"""A turn is so many times shorter while a checkpoint is under way ..."""
_SHORT_RECORDS: Final = 128
"""... but not so short that the calls cost much more than the work: records it has at least."""
OUTPUT_RECORDS: Final = 2048
"""Records per buffer where an operator cuts its own output ..."""
OUTPUT_BYTES: Final = 1 << 20
"""... and bytes from which on it does."""
_UNMEASURED: Final = 64
"""Records that may be made before they are measured."""
_ROWS_AT_ONCE: Final = 256
_PORTION_S: Final = TURN_S / 2
_FIRST: Final = 8
_WHOLE: Final = 1 << 20

PAUSE: Final = Batch([])
"""Yielded where the state is consistent with the outputs so far: a barrier may pass."""
REST: Final = Batch([])
"""Yielded where others may run and state may be flushed, but no barrier may pass."""


class Turn:
    """The present turn of a task, by the clock."""

    __slots__ = ("now", "short", "until")

    def __init__(self, now: Callable[[], float] = float, short: Callable[[], bool] = bool) -> None:
        self.now = now
        """Seconds; a clock that stands still never ends a turn."""
        self.short = short
        """Whether something urgent waits for the event loop."""
        self.begin()

    def begin(self) -> None:
        """Other tasks have run: a new turn begins."""
        self.until = self.now() + (TURN_S / _SHORT if self.short() else TURN_S)

    def over(self) -> bool:
        """Whether to let other tasks run."""
        return self.now() >= self.until


class Portion:
    """How many records to handle at once: as many as lately fit into half a turn."""

    __slots__ = ("most", "size")

    def __init__(self, most: int = _WHOLE) -> None:
        self.most = most
        self.size = _FIRST

    def pieces(self, batch: Batch, turn: Turn) -> Iterator[Batch]:
        """The buffer cut into portions, each of the size that is current when it is taken."""
        total = len(batch.records)
        at = 0
        while at < total:
            end = at + (self._short if turn.short() else self.size)
            yield batch if at == 0 and end >= total else batch.part(at, end)
            at = end

    @property
    def _short(self) -> int:
        """Records at once in a short turn."""
        return min(self.size, max(_SHORT_RECORDS, self.size // _SHORT))

    def took(self, count: int, seconds: float, made: int = 0) -> None:
        """Handling `count` records took so many `seconds` and made so many bytes."""
        share = max(seconds / _PORTION_S, 2 * made / OUTPUT_BYTES)
        if share > 1:
            self.size = max(1, int(count / share))
        elif count >= self.size:
            self.size = min(2 * self.size, self.most)


class Outputs:
    """Gathers the output of a user's functions into buffers limited in records, bytes and time."""

    __slots__ = (
        "_look",
        "_look_at",
        "_measured",
        "_portion",
        "_size_bytes",
        "_turn",
        "records",
        "times",
    )

    def __init__(self, turn: Turn, *, timed: bool = False) -> None:
        self._turn = turn
        self._portion = Portion(_ROWS_AT_ONCE)
        self.records: list[Any] = []
        self.times: list[int] | None = [] if timed else None
        self._size_bytes = self._measured = 0
        self._look = self._look_at = 1

    @property
    def due(self) -> bool:
        """Whether to emit what was gathered: it fills a buffer, or the turn is over."""
        count = len(self.records)
        if count >= self._look_at:
            self._measure()
            # Soon again where records are large; a look costs as much as a few small ones.
            small = self._size_bytes < OUTPUT_BYTES / 16
            self._look = min(2 * self._look, _UNMEASURED) if small else 1
            self._look_at = count + self._look
        full = count >= OUTPUT_RECORDS or self._size_bytes >= OUTPUT_BYTES
        return full or self._turn.over()

    def cut(self) -> Batch:
        """Everything gathered so far, as a buffer."""
        self._measure()
        batch = Batch(self.records, self.times, size_bytes=self._size_bytes)
        self.records, self.times = [], None if self.times is None else []
        self._size_bytes = self._measured = 0
        self._look_at = self._look
        return batch

    def take(self, made: Iterable[Any], time: int | None = None) -> Iterator[Batch]:
        """Gather all of `made`, with this event time; yields buffers as they are due."""
        if type(made) is list:
            self._add(made, time)
            if self.due:
                yield self.cut()
            return
        drawing = iter(made)
        size = drawn = 0
        while drawn == size:
            size, started = self._portion.size, self._turn.now()
            portion = list(islice(drawing, size))
            self._add(portion, time)
            drawn = len(portion)
            if drawn == size:
                seconds, before = self._turn.now() - started, self._size_bytes
                self._measure()
                self._portion.took(drawn, seconds, self._size_bytes - before)
            if self.due:
                yield self.cut()

    def _add(self, made: list[Any], time: int | None) -> None:
        self.records += made
        if self.times is not None and time is not None:
            self.times.extend(repeat(time, len(made)))

    def _measure(self) -> None:
        if self._measured < len(self.records):
            self._size_bytes += bytes_of(self.records[self._measured :])
            self._measured = len(self.records)


def flattened(
    function: Callable[[Any], Iterable[Any]], batch: Batch, turn: Turn
) -> Iterator[Batch]:
    """Buffers of the function's output for each record, with the record's event time."""
    outputs = Outputs(turn, timed=batch.times is not None)
    times: Iterable[int | None] = repeat(None) if batch.times is None else batch.times
    for record, time in zip(batch.records, times, strict=False):
        yield from outputs.take(function(record), time)
    if outputs.records:
        yield outputs.cut()
