"""Portions: how many records a task handles at once.

Invariant: a portion takes as long as half a turn, or twice as long as a call of the function takes
by itself, whichever is longer. A function that works for each record gets few of those that take
long; one that costs the same for any number of records, such as a request of a sink, gets whole
buffers, as smaller portions would do nothing but repeat that cost.
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
_WHOLE: Final = 1 << 20
_OLDER: Final = 7 / 8
"""What a call counts for, compared with the one after it."""
_CHANGED: Final = 4
"""A call that takes so many times as long as expected, or as short, is of another kind."""
_SPREAD: Final = 0.01
"""The variance of the numbers of records over their squared mean, from which on they differ."""
_NEGLIGIBLE_S: Final = _PORTION_S / 64


class Portion:
    """How many records to handle at once, by how long the last calls took."""

    __slots__ = ("_costs", "most", "size")

    def __init__(self, most: int = _WHOLE) -> None:
        self.most = most
        self.size = _FIRST
        self._costs = _Costs()

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
        fitting = max(_SHORT_RECORDS, self._costs.fitting(_PORTION_S / SHORTER))
        return round(min(self.size, fitting))

    def took(self, count: int, seconds: float, made: int = 0) -> None:
        """Handling `count` records took so many `seconds` and made so many bytes."""
        if count < self.size and seconds < _NEGLIGIBLE_S and 2 * made < OUTPUT_BYTES:
            return  # the usual case: a buffer that nothing would be gained by cutting
        self._costs.took(count, seconds)
        fitting = self._costs.fitting(_PORTION_S)
        if 2 * made > OUTPUT_BYTES:
            fitting = min(fitting, count * OUTPUT_BYTES / (2 * made))
        if fitting < self.size:
            # Of single records nobody can tell whether two of them would take longer.
            self.size = max(round(fitting), 2 if self._costs.of_single_records else 1)
        elif count >= self.size:
            self.size = round(min(2 * self.size, self.most, fitting))


class _Costs:
    """What a call and a record cost: a line through (records, seconds) of the last calls."""

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
        self._weight = _OLDER * self._weight + 1
        self._counts = _OLDER * self._counts + count
        self._seconds = _OLDER * self._seconds + seconds
        self._squares = _OLDER * self._squares + count * count
        self._products = _OLDER * self._products + count * seconds
        mean_s, mean_count = self._seconds / self._weight, self._counts / self._weight
        spread = self._weight * self._squares - self._counts**2
        if spread > _SPREAD * self._counts**2:  # else what a call costs cannot be seen
            covered = self._weight * self._products - self._counts * self._seconds
            self._call_s = max(0.0, mean_s - max(0.0, covered / spread) * mean_count)
        self._record_s = max(0.0, mean_s - self._call_s) / mean_count

    @property
    def of_single_records(self) -> bool:
        """Whether all late calls had one record."""
        return self._counts < (1 + _SPREAD) * self._weight

    def fitting(self, seconds: float) -> float:
        """Records of a call that takes so long, or twice its own cost."""
        if not self._record_s:
            return inf
        return (max(seconds, 2 * self._call_s) - self._call_s) / self._record_s
