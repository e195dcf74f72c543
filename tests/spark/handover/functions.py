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
END = "end"
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


def records(seed: int, keys: int, parts: list[int]) -> list[list[Any]]:
    """Records in so many parts, out of order within the delay; a part begins with some that are
    late, but for the first one.
    """
    rng = random.Random(seed)
    made: list[list[Any]] = []
    number = 0
    for part in parts:
        rows = [
            {
                "k": f"key-{rng.randrange(keys)}",
                "time_ms": _FIRST_MS + index * 200 + rng.randrange(4_000),
                "tag": rng.choice("abcde"),
                "v": index,
            }
            for index in range(number, number + part)
        ]
        if made:
            rows[5:5] = [_late(at, number, keys) for at in range(10)]
        made.append(rows)
        number += part
    return made


def _late(at: int, number: int, keys: int) -> dict[str, Any]:
    time = _FIRST_MS + number * 200 - 60_000 - at
    return {"k": f"key-{at % keys}", "time_ms": time, "tag": "late", "v": -at}


def end() -> dict[str, Any]:
    """A record so much later than the others that all of them are complete."""
    return {"k": END, "time_ms": _FIRST_MS + 86_400_000, "tag": "end", "v": 0}


def write(path: Path, rows: list[Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


class Keeper(StatefulProcessor):
    """Reads what it has of a key, for each row; embedded it writes at the first one."""

    def init(self, handle: Any) -> None:
        self.value = handle.getValueState("value", "n int", 3_600_000)
        self.list = handle.getListState("list", "n int", 3_600_000)
        self.plain = handle.getValueState("plain", "n bigint")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        for row in rows:
            if row.n is not None:
                self.value.update((row.n,))
                self.list.appendList([(row.n,), (row.n + 1,)])
                self.plain.update((row.n,))
            else:
                held = [list(self.list.get()), self.value.get(), self.plain.get()]
                yield Row(k=key[0], l=key[1], found=repr(held))

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        self.plain.update((initialState.n + (self.plain.get() or (0,))[0],))


KEPT = "k string, l bigint, n int"
