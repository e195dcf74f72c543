"""The operator chain of a task: records pass from operator to operator by function call.

Invariant: outputs reach the end of the chain in the order the head produced them.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Final

from tidelog.runtime.channels.buffers import BufferLimit
from tidelog.runtime.channels.messages import Batch, KeyedBatch, SideBatch
from tidelog.runtime.operators.event_time import AssignEventTime, Origin
from tidelog.runtime.operators.operator import Operator, OperatorContext
from tidelog.runtime.operators.portion import Portion
from tidelog.runtime.operators.turn import OUTPUT_BYTES, PAUSE, REST, WorkTime
from tidelog.runtime.user_code import close_all, named_call

_PIECES: Final = 4
"""A portion of input may add so many times the bytes of an output buffer to the state."""
_READING_RECORDS: Final = 2048
"""Records of a portion once rows may be in the table alone, however fast the last ones were: the
rows of all may be there suddenly, and each takes some 8 microseconds."""


class OperatorChain:
    """Operators by name, head first; may be empty (a bare source)."""

    def __init__(
        self, operators: list[tuple[str, Operator]], work: WorkTime, limit: BufferLimit
    ) -> None:
        self._operators = operators
        self._limit = limit
        self._portions = [Portion() for _ in operators]
        self._work = work
        self.turn = work.turn
        self._assigning = [op for _, op in operators if isinstance(op, AssignEventTime)]
        self._open: list[tuple[str, Operator]] = []
        """Operators that are open, to be closed."""
        self._rows_bytes: Callable[[], int] = int
        self._reads_table: Callable[[], bool] = bool

    def open(self, context: OperatorContext) -> None:
        """Open all operators; call `close` also after a failure, for those that were opened."""
        self._rows_bytes = context.backend.rows_bytes
        self._reads_table = context.backend.reads_table
        for name, operator in self._operators:
            with _call(name):
                operator.open(replace(context, operator=name, turn=self.turn))
            self._open.append((name, operator))

    def process(self, batch: Batch) -> Iterator[Batch]:
        return self._through((batch,), 0)

    def rows_read(self, batch: KeyedBatch) -> list[bytes] | None:
        """The keys of the rows that a buffer of the task's input needs, as far as is known."""
        _, head = self._operators[0]
        return head.rows_read(batch)

    def watermark(self, time: int) -> Iterator[Batch]:
        """Event time moved on: the output of each operator's timers, passed through the later ones.

        Here, in `tick` and in `finish` the state is consistent with the outputs at each `PAUSE`.
        """
        return self._call_all(lambda operator: operator.watermark(time))

    def tick(self, now_ms: int) -> Iterator[Batch]:
        return self._call_all(lambda operator: operator.tick(now_ms))

    def finish(self) -> Iterator[Batch]:
        return self._call_all(lambda operator: operator.finish())

    @property
    def event_time(self) -> AssignEventTime | None:
        """The last operator that makes watermarks: it replaces those of operators before it."""
        return self._assigning[-1] if self._assigning else None

    def read_from(self, origin: Origin | None) -> None:
        """The buffers that follow are of this origin; None: of an unknown one."""
        for operator in self._assigning:
            operator.read_from(origin)

    @property
    def late_records(self) -> int:
        """Records that came to the operators when event time had passed them."""
        return sum(operator.late_records for _, operator in self._operators)

    @property
    def unfired_timers(self) -> int:
        """Timers that were registered at the end of the data."""
        return sum(operator.unfired_timers for _, operator in self._operators)

    def close(self) -> None:
        """Close all operators that were opened, also when one of them fails."""
        operators, self._open = self._open, []
        calls = [partial(_close, name, operator) for name, operator in reversed(operators)]
        close_all("operators", calls, quietly=False)

    def _call_all(self, call: Callable[[Operator], Iterable[Batch]]) -> Iterator[Batch]:
        for following, (name, operator) in enumerate(self._operators, 1):
            started = self.turn.now()
            with _call(name):
                produced = call(operator)
            self._work.called(name, started)
            for batch in _guarded(name, produced, self._work):
                if batch is PAUSE:
                    yield PAUSE
                else:
                    yield from self._through((batch,), following)

    def _through(self, batches: Iterable[Batch], start: int) -> Iterator[Batch]:
        stream = iter(batches)
        for (name, operator), portion in zip(
            self._operators[start:], self._portions[start:], strict=True
        ):
            stream = self._apply(name, operator, stream, portion)
        return stream

    def _apply(
        self, name: str, operator: Operator, batches: Iterable[Batch], portion: Portion
    ) -> Iterator[Batch]:
        turn, rows_bytes = self.turn, self._rows_bytes
        if operator.takes_whole_buffers:
            batches = self._limit.joined(batches, turn.now)
        for batch in batches:
            if isinstance(batch, SideBatch) or not batch.records:
                yield batch
                continue
            if portion.limit_records > _READING_RECORDS and self._reads_table():
                portion.limit(_READING_RECORDS)
            pieces = portion.pieces(batch, turn) if operator.divisible else (batch,)
            for piece in pieces:
                started, before = turn.now(), rows_bytes()
                with _call(name):
                    produced = operator.process(piece)
                seconds, new_bytes = self._work.called(name, started), rows_bytes() - before
                yield from _guarded(name, produced, self._work)
                # A lazy operator measures its own steps.
                portion.took(len(piece.records), seconds, new_bytes // _PIECES)
                if turn.ended() or new_bytes > OUTPUT_BYTES:
                    yield REST


def _call(name: str) -> named_call:
    return named_call(name, lambda: f"operator {name!r}")


def _close(name: str, operator: Operator) -> None:
    with _call(name):
        operator.close()


def _guarded(name: str, batches: Iterable[Batch], work: WorkTime) -> Iterator[Batch]:
    """The batches of a possibly lazy operator; its errors and its long calls carry its name."""
    iterator, now = iter(batches), work.clock.monotonic
    while True:
        started = now()
        with _call(name):
            batch = next(iterator, None)
        work.called(name, started)
        if batch is None:
            return
        yield batch
