"""A join of two streams as a `StatefulProcessor`, the same class on Spark and embedded."""

from collections.abc import Iterator
from typing import Any

from tests.spark.support.zoo.query import APART_S
from tidelog import Row, StatefulProcessor, StatefulProcessorHandle, TimerValues

OUTPUT = "k string, t bigint, lv bigint, rv bigint"


class Pairs(StatefulProcessor):
    """Rows of a key that come from different sides and are near in time; `side` says which."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._rows = {
            side: handle.getListState(side, "t bigint, v bigint") for side in ("left", "right")
        }

    def handleInputRows(
        self, key: tuple[Any, ...], rows: Iterator[Row], timerValues: TimerValues
    ) -> Iterator[Row]:
        for row in rows:
            mine = (row.t, row.v)
            self._rows[row.side].appendValue(mine)
            for other in self._rows["left" if row.side == "right" else "right"].get():
                if abs(other[0] - row.t) <= APART_S:
                    left, right = (mine, other) if row.side == "left" else (other, mine)
                    yield Row(k=key[0], t=left[0], lv=left[1], rv=right[1])
