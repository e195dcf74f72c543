"""A store that is too slow for its time has fewer measured batches, and none before its warm-up."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from tidelog_bench.spark.application import Batches
from tidelog_bench.spark.counts import Counts, Sum


class Slow:
    """An application whose query has made `within` batches when its time is over."""

    def __init__(self, within: int) -> None:
        self.made = 0
        self.within = within
        self.ends: list[int] = []

    @contextlib.contextmanager
    def query(self, name: str, checkpoint: Path, last: int) -> Iterator[Any]:
        self.ends.append(last)
        yield self

    @property
    def lastProgress(self) -> dict[str, int]:
        return {"batchId": self.made - 1}

    @property
    def recentProgress(self) -> list[dict[str, int]]:
        return [{"batchId": batch} for batch in range(self.made)]

    def await_batch(self, query: Any, batch: int, timeout_s: float = 1e9) -> bool:
        self.made = max(self.made, batch + 1 if timeout_s == 1e9 else min(batch + 1, self.within))
        return self.made > batch

    def end_after(self, last: int) -> None:
        self.ends.append(last)

    def counts_at(self, batch: int) -> Counts:
        return {("put", "changelog"): Sum(8 * (batch + 1), 100 * (batch + 1))}

    def cpu_ms_at(self, batch: int) -> float:
        return 50.0 * batch


@pytest.mark.parametrize(
    ("within", "last", "ends"),
    [
        (100, 24, [24]),  # in time: all of them
        (12, 12, [24, 12]),  # the batch that runs when time is over is the last
        (5, 7, [24, 7]),  # three at least
    ],
)
def test_batches_are_measured_from_the_warm_up_to_the_end_of_the_time(
    within: int, last: int, ends: list[int], tmp_path: Path
) -> None:
    slow = Slow(within)
    found = Batches(warm=5, batches=20, limit_s=3.0).measure(slow, "join", tmp_path)  # type: ignore[arg-type]
    assert [one["batchId"] for one in found.progress] == list(range(5, last + 1))
    assert slow.ends == ends
    batches = last - 5 + 1
    assert found.counts == {("put", "changelog"): Sum(8 * batches, 100 * batches)}
    assert found.cpu_ms == 50.0 * batches
