"""A function whose result does not depend on where batches end, and its input.

Invariant: imported by Spark's Python workers too, by this module's name.
"""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tidelog import Row, StatefulProcessor
from tidelog.state.event_time import MAX_WATERMARK

INPUT = "k string, time_ms bigint, tag string, v bigint"
OUTPUT = (
    "k string, time_ms bigint, count bigint, sum bigint, recent array<bigint>, tags string, "
    "best bigint"
)
DELAY_MS = 5_000
_FIRST_MS = 1_700_000_000_000


class Mover(StatefulProcessor):
    """Every kind of state, and a timer for each record, at its own time."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.waiting = handle.getMapState("waiting", "time_ms bigint, v bigint", "tag string")
        self.total = handle.getValueState("total", "count bigint, sum bigint")
        self.recent = handle.getListState("recent", "v bigint")
        self.tags = handle.getMapState("tags", "tag string", "n bigint, last bigint")
        self.best = handle.getReducingState("best", "v bigint", max)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        for row in rows:
            self.waiting.updateValue((row.time_ms, row.v), (row.tag,))
            self.handle.registerTimer(row.time_ms)
        return iter(())

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Row]:
        # At the end of the data: Spark has no such moment.
        if timerValues.getCurrentWatermarkInMs() == MAX_WATERMARK:
            return
        now = expiredTimerInfo.getExpiryTimeInMs()
        for (time, v), (tag,) in list(self.waiting.iterator()):
            if time == now:
                self.waiting.removeKey((time, v))
                yield self._counted(key[0], time, v, tag)

    def _counted(self, key: str, time: int, v: int, tag: str) -> Row:
        count, total = self.total.get() or (0, 0)
        self.total.update((count + 1, total + v))
        self.recent.put([*self.recent.get(), (v,)][-3:])
        n, _ = self.tags.getValue((tag,)) or (0, 0)
        self.tags.updateValue((tag,), (n + 1, time))
        self.best.add((v,))
        tags = ";".join(f"{name}:{n}:{last}" for (name,), (n, last) in self.tags.iterator())
        return Row(
            k=key,
            time_ms=time,
            count=count + 1,
            sum=total + v,
            recent=[value for (value,) in self.recent.get()],
            tags=tags,
            best=self.best.get()[0],
        )


def records(seed: int, keys: int, number: int) -> tuple[list[Any], list[Any]]:
    """Records before and after the seam, out of order within the delay; after it some are late."""
    rng = random.Random(seed)
    made = [
        {
            "k": f"key-{rng.randrange(keys)}",
            "time_ms": _FIRST_MS + index * 200 + rng.randrange(4_000),
            "tag": rng.choice("abcde"),
            "v": index,
        }
        for index in range(number)
    ]
    half = number * 3 // 5
    late = [
        {
            "k": f"key-{at % keys}",
            "time_ms": _FIRST_MS + half * 200 - 60_000 - at,
            "tag": "l",
            "v": -at,
        }
        for at in range(10)
    ]
    before, after = made[:half], made[half:]
    return before, [*after[:5], *late, *after[5:]]


def write(path: Path, rows: list[Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
