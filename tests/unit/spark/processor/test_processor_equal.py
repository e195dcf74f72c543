"""The same class says and keeps the same on both engines, however each cuts its input.

Spark is a stand-in here (fake.py); tests/spark/processor has the real one.
"""

import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from tests.property.profiles import looking
from tests.support.clock import VirtualClock
from tests.unit.spark.processor.fake import Handle, Query
from tests.unit.state.conftest import Bench
from tidelog import Row, StatefulProcessor
from tidelog.examples.outages import main
from tidelog.examples.outages_function import GAP_MS, KEPT, MAX_DELAY_MS, Outages
from tidelog.examples.sessions import Sessions
from tidelog.runtime.channels.messages import KeyedBatch
from tidelog.runtime.operators.operator import OperatorContext
from tidelog.runtime.operators.process import Process
from tidelog.spark.processor.adapter import SparkProcessor, TypeNames
from tidelog.state.event_time import MAX_WATERMARK
from tidelog.state.key_groups import encode_key, key_group

START_MS = 1_000_000
Record = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A function, what it sees of a record, and what it keeps of the current key."""

    function: type[StatefulProcessor]
    key: str
    kept: Callable[[Any], Any]
    ends: bool
    """Whether it gets to know the end of the input, which Spark does not have."""

    def record(self, key: int, time: int, value: int) -> Record:
        other = {"value": value / 2} if self.key == "device" else {"page": f"/{value}"}
        return {self.key: f"k{key}", "time_ms": time, **other}


OUTAGES = Case(
    Outages,
    "device",
    lambda f: (f._totals.get(), list(f._recent.get()), list(f._waiting.iterator())),
    ends=True,
)
SESSIONS = Case(
    Sessions,
    "user",
    # Visits of one batch come in the order of the batch; the function sorts them itself.
    lambda f: (f._closed.get(), sorted(f._visits.get()), list(f._open.iterator())),
    ends=False,
)

moves = st.tuples(
    st.integers(0, 2),
    st.one_of(st.integers(0, 4_000), st.integers(25_000, 70_000)),
    st.one_of(st.just(0), st.just(MAX_DELAY_MS), st.integers(0, MAX_DELAY_MS)),
    st.integers(0, 9),
)
cuts = st.lists(st.integers(1, 7), min_size=1, max_size=6)


def cut(records: list[Record], sizes: list[int]) -> list[list[Record]]:
    """Batches of these sizes, again and again."""
    batches, at = [], 0
    while at < len(records):
        size = sizes[len(batches) % len(sizes)]
        batches.append(records[at : at + size])
        at += size
    return batches


def by_key(case: Case, rows: list[Any]) -> dict[str, list[Any]]:
    found = defaultdict(list)
    for row in rows:
        found[row[case.key]].append(row.asDict())
    return dict(found)


def embedded(case: Case, batches: list[list[Record]]) -> tuple[Any, Any]:
    """Its rows and its states, by key."""
    bench = Bench()
    function: Any = case.function()
    process = Process(function, "event")
    process.open(OperatorContext(VirtualClock(), bench.backend))
    out, newest = [], 0
    for batch in batches:
        keys = [encode_key(record[case.key]) for record in batch]
        groups = [key_group(key, 4).to_bytes(2, "big") for key in keys]
        times = [record["time_ms"] for record in batch]
        rows = [Row(**record) for record in batch]
        newest = max([newest, *times])
        made = [*process.process(KeyedBatch(rows, times, keys, groups))]
        made += process.watermark(newest - MAX_DELAY_MS - 1)
        out += [row for each in made for row in each.records]
    if case.ends:
        out += [row for each in process.watermark(MAX_WATERMARK) for row in each.records]
    kept = {}
    for key in {record[case.key] for batch in batches for record in batch}:
        bench.backend.use_encoded_key(encode_key(key))
        kept[key] = case.kept(function)
    assert process.late_records == 0
    return by_key(case, out), kept


def on_spark(case: Case, batches: list[list[Record]]) -> tuple[Any, Any]:
    """The same of the adapter."""
    columns = tuple(batches[0][0])
    adapter = SparkProcessor(case.function, "event", columns, TypeNames())
    query = Query(adapter, "time_ms", MAX_DELAY_MS + 1)
    out = [row for batch in [*batches, []] for row in query.run(case.key, batch)]
    handle = Handle(query.store)
    adapter.init(handle)
    kept = {}
    for key in {record[case.key] for batch in batches for record in batch}:
        handle.key = (key,)
        kept[key] = case.kept(adapter._processor)
    return by_key(case, out), kept


@pytest.mark.parametrize("case", [OUTAGES, SESSIONS], ids=["outages", "sessions"])
@looking(100)
@given(moves=st.lists(moves, min_size=1, max_size=60), ours=cuts, theirs=cuts)
def test_rows_per_key_and_final_state_are_the_same_on_both_engines(
    case: Case, moves: Any, ours: list[int], theirs: list[int]
) -> None:
    time, records, taken = START_MS, [], set()
    for key, step, late, value in moves:
        time += step
        if (key, time - late) not in taken or case is OUTAGES:
            taken.add((key, time - late))
            records.append(case.record(key, time - late, value))
    assert on_spark(case, cut(records, theirs)) == embedded(case, cut(records, ours))


def test_the_property_above_has_something_to_compare() -> None:
    times = [0, 1_000, 2_000, 40_000, 41_000, 100_000, 120_000]
    records = [OUTAGES.record(0, START_MS + at, at // 1000) for at in times]
    rows, kept = on_spark(OUTAGES, cut(records, [3]))
    assert [(row["silent_ms"], row["before"]) for row in rows["k0"]] == [
        (38_000, [0.0, 0.5, 1.0]),
        (59_000, [20.0, 20.5]),
    ]
    assert kept["k0"] == ((START_MS + 100_000, 6, 2), [(50.0,)], [((START_MS + 120_000,), (60.0,))])
    assert embedded(OUTAGES, cut(records, [2])) == (rows, kept)


def outages(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def expected(directory: Path) -> list[dict[str, Any]]:
    """All readings at once, sorted; the newest ones wait for others that never come."""
    lines = [line for file in directory.iterdir() for line in file.read_text().splitlines()]
    readings = [json.loads(line) for line in lines]
    passed = max(each["time_ms"] for each in readings) - MAX_DELAY_MS
    devices: dict[str, dict[int, float]] = defaultdict(dict)
    for each in readings:
        if each["time_ms"] < passed:
            held = devices[each["device"]]
            held[each["time_ms"]] = max(each["value"], held.get(each["time_ms"], 0))
    found = []
    for device, held in devices.items():
        times, since, number = sorted(held), 0, 0
        for at in range(1, len(times)):
            if times[at] - times[at - 1] > GAP_MS:
                number += 1
                found.append(
                    {
                        "device": device,
                        "number": number,
                        "silent_from_ms": times[at - 1],
                        "silent_ms": times[at] - times[at - 1],
                        "before": [held[t] for t in times[since:at]][-KEPT:],
                        "after": held[times[at]],
                    }
                )
                since = at
    return found


def test_its_lines_are_the_silences_of_the_sorted_readings(tmp_path: Path) -> None:
    readings = tmp_path / "in"
    found = outages("--input", readings, "--state", tmp_path / "state", "--make")
    assert found.exit_code == 0, found.output
    rows = [json.loads(line) for line in found.stdout.splitlines()]
    order = lambda row: (row["device"], row["number"])  # noqa: E731
    assert sorted(rows, key=order) == sorted(expected(readings), key=order)
    assert len(rows) > 10

    again = outages("--input", readings, "--state", tmp_path / "state")
    assert (again.exit_code, again.stdout) == (0, "")
    assert "had finished before" in again.stderr
