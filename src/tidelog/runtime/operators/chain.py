"""The operator chain of a task: records pass from operator to operator by function call.

Invariant: outputs reach the end of the chain in the order the head produced them.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from tidelog.runtime.blame import blame
from tidelog.runtime.channels.messages import Batch
from tidelog.runtime.operators.operator import Operator, OperatorContext
from tidelog.runtime.operators.stateless import AssignEventTime


class OperatorChain:
    """Operators by name, head first; may be empty (a bare source)."""

    def __init__(self, operators: list[tuple[str, Operator]]) -> None:
        self._operators = operators

    def open(self, context: OperatorContext) -> None:
        """Open all operators."""
        for name, operator in self._operators:
            with blame(name):
                operator.open(replace(context, operator=name))

    def process(self, batch: Batch) -> Iterator[Batch]:
        """Pass a buffer through the chain."""
        return self._through((batch,), 0)

    def watermark(self, time: int) -> Iterator[Iterator[Batch]]:
        """Event time moved on: timers of each operator, passed through those behind it.

        Yields the outputs of a few timers at a time; once they were taken state is consistent.
        """
        for at, (name, operator) in enumerate(self._operators):
            with blame(name):
                produced = operator.watermark(time)
            for batch in _blamed(name, produced):
                yield self._through((batch,), at + 1)

    def tick(self, now_ms: int) -> Iterator[Batch]:
        """Processing time moved on."""
        for at, (name, operator) in enumerate(self._operators):
            with blame(name):
                produced = operator.tick(now_ms)
            yield from self._through(_blamed(name, produced), at + 1)

    def finish(self) -> Iterator[Batch]:
        """End of data: finish the operators in order."""
        for at, (name, operator) in enumerate(self._operators):
            with blame(name):
                produced = operator.finish()
            yield from self._through(_blamed(name, produced), at + 1)

    def generated_watermark(self) -> int | None:
        """The watermark of the last operator that makes them."""
        made = [
            operator.generated_watermark()
            for _, operator in self._operators
            if isinstance(operator, AssignEventTime)
        ]
        return made[-1] if made else None

    @property
    def generates_watermarks(self) -> bool:
        """Watermarks from upstream end here; the chain makes its own."""
        return any(isinstance(operator, AssignEventTime) for _, operator in self._operators)

    @property
    def late_records(self) -> int:
        """Records that the operators dropped as late."""
        return sum(operator.late_records for _, operator in self._operators)

    def close(self) -> None:
        """Close all operators, also after a failure."""
        for name, operator in self._operators:
            with blame(name):
                operator.close()

    def _through(self, batches: Iterable[Batch], start: int) -> Iterator[Batch]:
        stream = iter(batches)
        for name, operator in self._operators[start:]:
            stream = _apply(name, operator, stream)
        return stream


def _apply(name: str, operator: Operator, batches: Iterable[Batch]) -> Iterator[Batch]:
    for batch in batches:
        if batch.records:
            with blame(name):
                produced = operator.process(batch)
            yield from _blamed(name, produced)


def _blamed(name: str, batches: Iterable[Batch]) -> Iterator[Batch]:
    """The batches of a possibly lazy operator; its errors carry its name."""
    iterator = iter(batches)
    while True:
        with blame(name):
            batch = next(iterator, None)
        if batch is None:
            return
        yield batch
