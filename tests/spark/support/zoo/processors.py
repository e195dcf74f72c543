"""transformWithState (value, list and map state, timers, state that expires), and
applyInPandasWithState with an event time timeout.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from tests.spark.support.place import Row
from tests.spark.support.zoo.query import (
    LATE,
    Batch,
    Query,
    Sources,
    by_key,
    events,
    ordered,
    records,
    single,
    with_time,
)

OUTPUT = "k string, n long, odd long, distinct long, expired long"
TIMEOUT_MS = 5_000_000
HOUR_MS = 3_600_000

ONLY_WITH_DATA = {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}
"""State with a time to live makes batches without data for ever, also when all input is read."""


class Tallies(StatefulProcessor):
    """All kinds of state at once: a count, a list of odd values, a map of all values, and a value
    that expires before the next batch.
    """

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.count = handle.getValueState("count", "n long")
        self.odd = handle.getListState("odd", "v long", HOUR_MS)
        self.seen = handle.getMapState("seen", "v long", "n long")
        self.brief = handle.getValueState("brief", "n long", 1)

    def tally(self, values: list[int]) -> dict[str, int]:
        expired = not self.brief.exists()
        self.brief.update((1,))
        n = (self.count.get() or (0,))[0] + len(values)
        self.count.update((n,))
        for value in values:
            if value % 2:
                self.odd.appendValue((value,))
            known = self.seen.getValue((value,))
            self.seen.updateValue((value,), ((known[0] if known else 0) + 1,))
        return {
            "n": n,
            "odd": sum(value for (value,) in self.odd.get()),
            "distinct": len(list(self.seen.keys())),
            "expired": int(expired),
        }

    def close(self) -> None:
        pass


class PandasTallies(Tallies):
    def handleInputRows(  # type: ignore[override]
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        values = [int(value) for frame in rows for value in frame["v"]]
        yield pd.DataFrame({"k": [key[0]], **{k: [v] for k, v in self.tally(values).items()}})


def _tallies_in_pandas(sources: Sources) -> DataFrame:
    return (
        sources.stream()
        .groupBy("k")
        .transformWithStateInPandas(PandasTallies(), OUTPUT, "Update", "ProcessingTime")
    )


def _tallies_of(batches: list[Batch]) -> dict[tuple[str, ...], Row]:
    found: dict[str, list[int]] = {}
    for record in records(batches):
        found.setdefault(record["k"], []).append(record["v"])
    rows = [
        {
            "k": key,
            "n": len(values),
            "odd": sum(value for value in values if value % 2),
            "distinct": len(set(values)),
            "expired": 1,
        }
        for key, values in found.items()
    ]
    return by_key(rows, "k")


def _no_late(seed: int) -> list[Batch]:
    made = events(seed=seed, ends=True)
    return [{"events": [row for row in rows if row["k"] != LATE]} for rows in made]


def _until_timeout(
    key: tuple[str], frames: Iterator[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    """Counts until the key has been silent for a long time; then emits the count."""
    n, total = state.getOption or (0, 0)
    if state.hasTimedOut:
        state.remove()
        yield pd.DataFrame({"k": [key[0]], "n": [n], "total": [total]})
        return
    for frame in frames:
        n += len(frame)
        total += int(frame["v"].sum())
    state.update((n, total))
    state.setTimeoutTimestamp(state.getCurrentWatermarkMs() + TIMEOUT_MS)


def _with_timeout(sources: Sources) -> DataFrame:
    return (
        with_time(sources.stream())
        .groupBy("k")
        .applyInPandasWithState(
            _until_timeout,
            outputStructType="k string, n long, total long",
            stateStructType="n long, total long",
            outputMode="append",
            timeoutConf=GroupStateTimeout.EventTimeTimeout,
        )
    )


def _counted(batches: list[Batch]) -> list[Row]:
    n: Counter[Any] = Counter(record["k"] for record in records(batches))
    total: Counter[Any] = Counter()
    for record in records(batches):
        total[record["k"]] += record["v"]
    return ordered([{"k": key, "n": n[key], "total": total[key]} for key in n])


TALLIES = Query(
    "transform_with_state_in_pandas",
    _tallies_in_pandas,
    lambda: single(events(seed=41)),
    _tallies_of,
    mode="update",
    key=("k",),
    settings=ONLY_WITH_DATA,
)
QUERIES = [
    TALLIES,
    Query("apply_in_pandas_with_state", _with_timeout, lambda: _no_late(31), _counted),
]
