"""An operator whose records are finished by a function, such as sums and counts to means."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tidelog.runtime.channels.messages import Batch, SideBatch
from tidelog.runtime.operators.operator import Operator, OperatorContext
from tidelog.runtime.operators.outputs import Distinct
from tidelog.runtime.user_code import map_all


class Finished(Operator):
    """Another operator, but for what it emits; its side output stays as it is."""

    def __init__(self, operator: Operator, finish: Callable[[Any], Any]) -> None:
        self._operator = operator
        self._finish = finish
        self._distinct = Distinct()
        self.divisible = operator.divisible

    @property
    def late_records(self) -> int:  # type: ignore[override]
        return self._operator.late_records

    def open(self, context: OperatorContext) -> None:
        self._operator.open(context)

    def process(self, batch: Batch) -> Iterable[Batch]:
        return self._finished(self._operator.process(batch))

    def watermark(self, time: int) -> Iterable[Batch]:
        return self._finished(self._operator.watermark(time))

    def finish(self) -> Iterable[Batch]:
        return self._finished(self._operator.finish())

    def close(self) -> None:
        self._operator.close()

    def _finished(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        for batch in batches:
            if isinstance(batch, SideBatch) or not batch.records:
                yield batch  # also `PAUSE` and `REST`
            else:
                made = map_all(self._finish, batch.records)
                self._distinct.check(made, batch.records)
                yield Batch(made, batch.times)
