"""What a user's functions make, cut into buffers.

Invariant: a buffer is limited in records and bytes, and ends when the task's turn has ended.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, repeat
from typing import Any, Final

from tidelog.runtime.channels.buffers import bytes_of
from tidelog.runtime.channels.copies import unchanging
from tidelog.runtime.channels.messages import Batch
from tidelog.runtime.operators.portion import Portion
from tidelog.runtime.operators.turn import OUTPUT_BYTES, OUTPUT_RECORDS, PAUSE, Turn
from tidelog.state.schema.row import Row

_CHECK_ALL: Final = 16
"""So many buffers of a function are checked at first."""
_CHECK_EVERY: Final = 8
"""Of later buffers one of so many is checked."""


class Distinct:
    """Looks at the buffers that one function makes."""

    __slots__ = ("_buffers", "_last_input", "_last_output")

    def __init__(self) -> None:
        self._buffers = 0
        self._last_output: Any = None
        self._last_input: Any = None

    def check(self, outputs: Sequence[Any], inputs: Sequence[Any] = ()) -> None:
        """Raises ValueError for an output that is there twice, and that somebody could change.

        Objects that the function got twice among its inputs are not its doing.
        """
        self._buffers += 1
        if (self._buffers > _CHECK_ALL and self._buffers % _CHECK_EVERY) or not outputs:
            return
        same_input = bool(inputs) and inputs[0] is self._last_input
        again = outputs[0] is self._last_output and not same_input
        self._last_output, self._last_input = outputs[-1], inputs[-1] if inputs else None
        if not again and len(set(map(id, outputs))) == len(outputs):
            return
        output_counts, input_counts = Counter(map(id, outputs)), Counter(map(id, inputs))
        for value in outputs:
            twice = output_counts[id(value)] > max(1, input_counts[id(value)])
            twice = twice or (again and value is outputs[0])
            if twice and not unchanging([value]):
                raise ValueError(
                    f"the same {type(value).__name__} was given twice, so what it was before it "
                    "was changed is lost; give a new object each time"
                )


_ONE: Final = (Row, dict, str, bytes)
"""What a function returned for one record, and iterates over its own parts."""
_UNMEASURED: Final = 64
"""Records that may be made before they are measured."""
_ROWS_AT_ONCE: Final = 256


class Outputs:
    """Gathers the output of a user's functions into buffers limited in records, bytes and time."""

    __slots__ = (
        "_distinct",
        "_inputs",
        "_look",
        "_look_at",
        "_measured",
        "_portion",
        "_size_bytes",
        "_turn",
        "records",
        "times",
    )

    def __init__(
        self,
        turn: Turn,
        *,
        timed: bool = False,
        distinct: Distinct | None = None,
        inputs: Sequence[Any] = (),
    ) -> None:
        """`inputs` is what the functions get, `distinct` what looks at their output."""
        self._turn = turn
        self._distinct, self._inputs = distinct or Distinct(), inputs
        self._portion = Portion(_ROWS_AT_ONCE)
        self.records: list[Any] = []
        self.times: list[int] | None = [] if timed else None
        self._size_bytes = self._measured = 0
        self._look = self._look_at = 1

    @property
    def due(self) -> bool:
        """Whether to emit what was gathered: it fills a buffer, or the turn has ended."""
        count = len(self.records)
        if count >= self._look_at:
            self._measure()
            # Soon again where records are large; a look costs as much as a few small ones.
            small = self._size_bytes < OUTPUT_BYTES / 16
            self._look = min(2 * self._look, _UNMEASURED) if small else 1
            self._look_at = count + self._look
        full = count >= OUTPUT_RECORDS or self._size_bytes >= OUTPUT_BYTES
        return full or self._turn.ended()

    def cut(self) -> Batch:
        """Everything gathered so far, as a buffer; raises ValueError as `Distinct.check`."""
        self._distinct.check(self.records, self._inputs)
        self._measure()
        batch = Batch(self.records, self.times, size_bytes=self._size_bytes)
        self.records, self.times = [], None if self.times is None else []
        self._size_bytes = self._measured = 0
        self._look_at = self._look
        return batch

    def rest(self) -> Iterator[Batch]:
        if self.records:
            yield self.cut()

    def step(self, limit: int) -> Iterator[Batch]:
        """A buffer and a `PAUSE`, where `limit` records or more were gathered or it is due."""
        if len(self.records) >= limit or self.due:
            yield self.cut()
            yield PAUSE

    def take(self, outputs: Iterable[Any], time: int | None = None) -> Iterator[Batch]:
        """Gather all outputs of a call, with this event time; yields buffers as they are due."""
        if type(outputs) is list:
            self._add(outputs, time)
            if self.due:
                yield self.cut()
            return
        if isinstance(outputs, _ONE) or not isinstance(outputs, Iterable):
            kind = type(outputs).__name__
            raise TypeError(
                f"it returned one value of type {kind}, not records: yield it, or return a list"
            )
        remaining = iter(outputs)
        size = count = 0
        while count == size:
            size, started = self._portion.size, self._turn.now()
            portion = list(islice(remaining, size))
            self._add(portion, time)
            count = len(portion)
            if count == size:
                seconds, before = self._turn.now() - started, self._size_bytes
                self._measure()
                self._portion.took(count, seconds, self._size_bytes - before)
            if self.due:
                yield self.cut()

    def _add(self, outputs: list[Any], time: int | None) -> None:
        self.records += outputs
        if self.times is not None and time is not None:
            self.times.extend(repeat(time, len(outputs)))

    def _measure(self) -> None:
        if self._measured < len(self.records):
            self._size_bytes += bytes_of(self.records[self._measured :])
            self._measured = len(self.records)


def flattened(
    function: Callable[[Any], Iterable[Any]], batch: Batch, turn: Turn, distinct: Distinct
) -> Iterator[Batch]:
    """Buffers of the function's output for each record, with the record's event time."""
    timed = batch.times is not None
    outputs = Outputs(turn, timed=timed, distinct=distinct, inputs=batch.records)
    times: Iterable[int | None] = repeat(None) if batch.times is None else batch.times
    for record, time in zip(batch.records, times, strict=False):
        yield from outputs.take(function(record), time)
    yield from outputs.rest()
