"""Rows of another system come to a processor before the records of its stream."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.pipelines import Outside, Portions, acted_on, run
from tidelog import ConfigError, IterableSource, Job, Row, StatefulProcessor
from tidelog.storage.memory import MemoryStore

KEYS = ("a", "b", "c", "d")


class Total(StatefulProcessor):
    """The sum of a key, and how many records were added to what it began with."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.total = handle.getValueState("total", "sum bigint, begun bigint")

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        total, begun = self.total.get() or (0, 0)
        self.total.update((total + initialState["n"], begun + 1))

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        for row in rows:
            total, begun = self.total.get() or (0, 0)
            self.total.update((total + row["n"], begun))
            yield (key[0], total + row["n"], begun)


def job(records: Portions, sink: Outside, time_mode: Any = "none") -> Job:
    job = Job("totals")
    rows = Portions({"rows": [{"k": KEYS[n % 3], "n": 100 * n} for n in range(12)]}, 2)
    rows.has_end = True
    stream = job.source(records, name="records")
    if time_mode == "event":
        stream = stream.event_time(lambda row: row["n"])
    initial = job.source(rows, name="rows").key_by(lambda row: row["k"])
    keyed = stream.key_by(lambda row: row["k"])
    keyed.transform_with_state(Total, time_mode=time_mode, initial_state=initial).sink(sink)
    return job


def expected(records: Portions) -> list[tuple[str, int, int]]:
    totals = {"a": 1800, "b": 2200, "c": 2600, "d": 0}
    rows = []
    for record in records.records:
        totals[record["k"]] += record["n"]
        rows.append((record["k"], totals[record["k"]], 0 if record["k"] == "d" else 4))
    return rows


@pytest.mark.parametrize("time_mode", ["none", "event"])
def test_a_processor_begins_with_the_rows_also_when_it_was_killed_meanwhile(time_mode: Any) -> None:
    records = Portions({"records": [{"k": KEYS[n % 4], "n": n} for n in range(40)]})
    sink, store = Outside(), MemoryStore()
    for seconds in (1.6, 2.2, 2.4):
        acted_on(job(records, sink, time_mode), store, at=seconds, crash=True)
    run(job(records, sink, time_mode), store)
    assert sorted(sink.records) == sorted(expected(records))


def test_a_stream_without_keys_is_refused() -> None:
    job = Job("totals")
    rows = job.source(IterableSource([1]), name="rows")
    keyed = job.source(IterableSource([1])).key_by(lambda n: n)
    with pytest.raises((ConfigError, AttributeError)):
        keyed.transform_with_state(Total, initial_state=rows)  # type: ignore[arg-type]
