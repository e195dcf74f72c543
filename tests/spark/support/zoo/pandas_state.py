"""applyInPandasWithState with an event time timeout."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from tests.spark.support.place import Row
from tests.spark.support.zoo.query import (
    Batch,
    Query,
    Sources,
    events,
    ordered,
    records,
    with_time,
)

TIMEOUT_MS = 5_000_000


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


def _build(sources: Sources) -> DataFrame:
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


def _expected(batches: list[Batch]) -> list[Row]:
    n: Counter[Any] = Counter(record["k"] for record in records(batches))
    total: Counter[Any] = Counter()
    for record in records(batches):
        total[record["k"]] += record["v"]
    return ordered([{"k": key, "n": n[key], "total": total[key]} for key in n])


QUERIES = [
    Query(
        "apply_in_pandas_with_state",
        _build,
        lambda: [
            {"events": [row for row in rows if row["k"] != "late"]}
            for rows in events(seed=31, ends=True)
        ],
        _expected,
    ),
]
