"""Portions: how many records a call of a user's function gets, so that it takes half a turn.

The cost of a call is estimated by a linear regression: seconds = call + record x records.
"""

from collections.abc import Iterator
from math import inf
from typing import Final

from tidelog.runtime.channels.messages import Batch
from tidelog.runtime.operators.turn import OUTPUT_BYTES, SHORTER, TURN_S, Turn

_PORTION_S: Final = TURN_S / 2
_SHORT_RECORDS: Final = 128
"""A portion of a short turn has at least so many: calls must not cost much more than the work."""
_FIRST: Final = 8
_NO_LIMIT: Final = 1 << 20
_DECAY: Final = 7 / 8
"""The weight of a call in the regression, compared with the one after it."""
_CHANGED: Final = 4
"""A call that takes so many times as long as expected, or as short, is of another kind."""
_SPREAD: Final = 0.01
"""The variance of the numbers of records over their squared mean, from which on they differ."""
_NEGLIGIBLE_S: Final = _PORTION_S / 64


class Portion:
    """How many records to handle at once, by how long the last calls took."""

    __slots__ = ("_costs", "limit_records", "size")

    def __init__(self, limit: int = _NO_LIMIT) -> None:
        self.limit_records = limit
        self.size = _FIRST
        self._costs = _Costs()

    def limit(self, records: int) -> None:
        """Never handle more than so many at once from now on."""
        self.limit_records, self.size = records, min(self.size, records)

    def pieces(self, batch: Batch, turn: Turn) -> Iterator[Batch]:
        """The buffer cut into portions, each of the size that is current when it is taken."""
        total = len(batch.records)
        start = 0
        while start < total:
            end = start + (self._short if turn.short() else self.size)
            yield batch if start == 0 and end >= total else batch.part(start, end)
            start = end

    @property
    def _short(self) -> int:
        """Records at once in a short turn."""
        fitting = max(_SHORT_RECORDS, self._costs.fitting(_PORTION_S / SHORTER))
        return round(min(self.size, fitting))

    def took(self, count: int, seconds: float, output_bytes: int = 0) -> None:
        """Handling `count` records took so many `seconds` and gave `output_bytes`."""
        if count < self.size and seconds < _NEGLIGIBLE_S and 2 * output_bytes < OUTPUT_BYTES:
            return  # the usual case: a buffer that nothing would be gained by cutting
        self._costs.took(count, seconds)
        fitting = self._costs.fitting(_PORTION_S)
        if 2 * output_bytes > OUTPUT_BYTES:
            fitting = min(fitting, count * OUTPUT_BYTES / (2 * output_bytes))
        if fitting < self.size:
            # Of single records nobody can tell whether two of them would take longer.
            self.size = max(round(fitting), 2 if self._costs.of_single_records else 1)
        elif count >= self.size:
            self.size = round(min(2 * self.size, self.limit_records, fitting))


class _Costs:
    """What a call and a record cost: the intercept and the slope of a weighted linear regression
    of seconds over records, of the calls so far. Each call weighs less than the one after it, so
    the sums of the regression are all there is to keep.
    """

    __slots__ = ("_call_s", "_counts", "_products", "_record_s", "_seconds", "_squares", "_weight")

    def __init__(self) -> None:
        self._record_s = 0.0
        self._forget()

    def _forget(self) -> None:
        self._weight = self._counts = self._seconds = self._squares = self._products = 0.0
        self._call_s = 0.0

    def took(self, count: int, seconds: float) -> None:
        """A call with so many records took so long."""
        expected = self._call_s + self._record_s * count
        if not expected / _CHANGED <= seconds <= expected * _CHANGED:
            self._forget()
        self._weight = _DECAY * self._weight + 1
        self._counts = _DECAY * self._counts + count
        self._seconds = _DECAY * self._seconds + seconds
        self._squares = _DECAY * self._squares + count * count
        self._products = _DECAY * self._products + count * seconds
        mean_s, mean_count = self._seconds / self._weight, self._counts / self._weight
        spread = self._weight * self._squares - self._counts**2
        if spread > _SPREAD * self._counts**2:  # else what a call costs cannot be seen
            covariance = self._weight * self._products - self._counts * self._seconds
            self._call_s = max(0.0, mean_s - max(0.0, covariance / spread) * mean_count)
        self._record_s = max(0.0, mean_s - self._call_s) / mean_count

    @property
    def of_single_records(self) -> bool:
        """Whether the latest calls had one record each."""
        return self._counts < (1 + _SPREAD) * self._weight

    def fitting(self, seconds: float) -> float:
        """Records of a call that takes so long, or twice its own cost."""
        if not self._record_s:
            return inf
        return (max(seconds, 2 * self._call_s) - self._call_s) / self._record_s
