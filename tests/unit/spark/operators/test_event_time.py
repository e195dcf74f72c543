"""Event time of a query is by split, as embedded, and what is late is late on both engines."""

import random
from collections import Counter
from collections.abc import Callable
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec import json

from tests.spark.job.jobs import Clocked
from tests.support.pipelines import run
from tests.unit.spark.operators.simulated import Simulation
from tidelog import FileSink, Job, JobConfig, JsonLinesSource, OutputTag, Row, Tumbling
from tidelog.spark.job.sources import FileReader
from tidelog.spark.operators.input_times import latest_times
from tidelog.spark.operators.layout import state_name
from tidelog.storage.memory import MemoryStore

LATE = OutputTag("late")
START_MS = 1_700_000_000_000
Rows = list[dict[str, Any]]


def windows(directory: Path, **options: Any) -> Job:
    """Counts of windows, and the records that are late for them."""
    job = Job("windows")
    timed = job.source(JsonLinesSource(directory / "source")).event_time(attrgetter("t"), **options)
    counts = timed.key_by(attrgetter("k")).window(Tumbling("1s"), name="counts", late=LATE).count()
    counts.sink(FileSink(directory / "out" / "counts"), name="counts-out")
    late = counts.side_output(LATE).map(lambda row: row.n, name="number")
    late.sink(FileSink(directory / "out" / "late"), name="late-out")
    return job


def rows(seed: int, count: int, disorder_ms: int = 0, start: int = 0) -> Rows:
    """Records whose times grow, but for so much disorder."""
    draw, time, records = random.Random(seed), START_MS + start, Rows()
    for number in range(count):
        time += draw.randrange(20)
        moment = time - draw.randrange(disorder_ms + 1)
        records.append({"k": f"key-{draw.randrange(5)}", "t": moment, "n": number})
    return records


def emitted(simulation: Simulation) -> dict[str, Counter[str]]:
    """The lines of each sink as a multiset."""
    lines: dict[str, Counter[str]] = {}
    for sink in simulation.plan.sinks:
        (branch,) = simulation.plan.branches_of(sink)
        texts = map(json.encode, simulation.records[branch])
        lines[sink.id.removesuffix("-out")] = Counter(text.decode() for text in texts)
    return lines


def embedded(
    job: Callable[..., Job], tmp_path: Path, splits: dict[str, Rows], **options: Any
) -> dict[str, Counter[str]]:
    """What an embedded job writes of a file for each split."""
    source, output = tmp_path / "source", tmp_path / "out"
    source.mkdir()
    for name, records in splits.items():
        (source / name).write_bytes(b"\n".join(map(json.encode, records)))
    run(job(tmp_path, **options), MemoryStore(), JobConfig(parallelism=1))
    written: dict[str, Counter[str]] = {}
    for directory in output.iterdir():
        files = [path.read_text().splitlines() for path in directory.glob("*part-*")]
        written[directory.name] = Counter(line for lines in files for line in lines)
    return written


def records(rows: Rows) -> list[list[Row]]:
    """What one read gives."""
    return [[Row(**row) for row in rows]]


END: dict[str, Any] = {"k": "end", "t": START_MS + 10**9, "n": -1}


def without_end(lines: dict[str, Counter[str]]) -> dict[str, Counter[str]]:
    """Without what an embedded job emits because its input ends."""
    return {
        name: Counter({line: n for line, n in of_sink.items() if '"end"' not in line})
        for name, of_sink in lines.items()
    }


@pytest.mark.parametrize("partitions", [{}, {"a": None, "b": None}])
def test_no_record_of_a_partition_that_lags_is_late(
    partitions: dict[str, int | None], tmp_path: Path
) -> None:
    fast, slow = rows(1, 900), rows(2, 300)
    simulation = Simulation(windows(tmp_path), partitions={"source": partitions})
    # One is far ahead in each batch, and the other one begins later.
    simulation.batch(source={"a": records(fast[:1]), "b": records(slow[:1])})
    for batch in range(3):
        some = {"a": records(fast[1 + batch * 300 : 1 + (batch + 1) * 300])}
        if batch:
            some["b"] = records(slow[1 + (batch - 1) * 150 : 1 + batch * 150])
        simulation.batch(source=some)
    simulation.batch(source={"a": records([END]), "b": records([END])})
    expected = without_end(embedded(windows, tmp_path, {"a": [*fast, END], "b": [*slow, END]}))
    assert not simulation.late
    assert emitted(simulation) == {"late": Counter(), **expected}
    assert expected["counts"].total() > 20


def test_a_partition_that_is_known_and_has_no_records_holds_event_time_until_it_is_idle(
    tmp_path: Path,
) -> None:
    job = windows(tmp_path, idle_after_ms="10s")
    simulation = Simulation(job, partitions={"source": {"a": None, "b": None}})
    fast = rows(1, 300)
    simulation.batch(source={"a": records(fast)})
    assert not emitted(simulation)["counts"]
    for _ in range(10):  # a second each, without any input
        simulation.batch()
    assert emitted(simulation)["counts"].total() > 5
    assert not simulation.late


def test_records_that_are_late_in_their_own_file_are_late_on_both_engines(tmp_path: Path) -> None:
    source, draw = rows(3, 40_000), random.Random(4)
    for row in draw.sample(source[20_000:], 300):
        row["t"] -= draw.randrange(250_000)
    expected = without_end(embedded(windows, tmp_path, {"a": [*source, END]}))
    reader = FileReader(JsonLinesSource(tmp_path / "source"), {})
    paths = pa.RecordBatch.from_pydict({"path": [(tmp_path / "source" / "a").as_uri()]})
    simulation = Simulation(windows(tmp_path))
    simulation.batch(source={"a": [read for _, read in reader.read(paths)]})
    assert emitted(simulation) == expected
    assert expected["late"].total() == simulation.late["counts"] > 100


def test_what_is_late_is_counted_in_every_batch(tmp_path: Path) -> None:
    simulation = Simulation(windows(tmp_path), partitions={"source": {}})
    for start in range(3):
        simulation.batch(source={"a": records(rows(1, 300, start=-start * 5_000))})
    assert simulation.late["counts"] == emitted(simulation)["late"].total() > 500


def again(directory: Path) -> Job:
    """Event time after a window, of what it emits."""
    job = Job("again")
    timed = job.source(JsonLinesSource(directory / "source")).event_time(attrgetter("t"))
    counts = timed.key_by(attrgetter("k")).window(Tumbling("1s"), name="counts").count()
    starts = counts.event_time(itemgetter(1), max_delay_ms="5s", name="again")
    per_minute = starts.key_by(itemgetter(0)).window(Tumbling("10s"), name="sums")
    per_minute.sum(itemgetter(2)).sink(FileSink(directory / "out" / "sums"), name="sums-out")
    return job


def clocked(directory: Path) -> Job:
    """A processor with timers of processing time, before a window of event time."""
    job = Job("clocked")
    timed = job.source(JsonLinesSource(directory / "source")).event_time(attrgetter("t"))
    passed = timed.key_by(attrgetter("k")).transform_with_state(
        Passing, time_mode="processing", name="passing"
    )
    again = passed.event_time(itemgetter(1), name="again").key_by(itemgetter(0))
    counts = again.window(Tumbling("10s"), name="sums").count()
    counts.sink(FileSink(directory / "out" / "sums"), name="sums-out")
    return job


class Passing(Clocked):
    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        for row in rows:
            yield (key[0], row.t)


@pytest.mark.parametrize("job", [again, clocked])
def test_windows_after_another_operator_are_those_of_the_embedded_job(
    job: Callable[..., Job], tmp_path: Path
) -> None:
    source = rows(5, 2_000)
    last = {**END, "t": END["t"] + 10**9}
    simulation = Simulation(job(tmp_path))
    for start in range(0, len(source), 500):
        simulation.batch(source={str(start): records(source[start : start + 500])})
    simulation.batch(source={"end": records([END])})
    simulation.batch(source={"last": records([last])})
    expected = without_end(embedded(job, tmp_path, {"a": [*source, END, last]}))
    assert without_end(emitted(simulation)) == expected
    assert expected["sums"].total() > 5


def test_event_time_of_partitions_goes_over_and_comes_back(tmp_path: Path) -> None:
    """What a partition has read before it moves holds event time on both ways."""
    job = windows(tmp_path, max_delay_ms="1s")
    read_to = {"a": START_MS + 90_000, "b": START_MS + 30_000}
    simulation = Simulation(job, partitions={"source": read_to})
    simulation.batch(source={"a": records([{"k": "x", "t": START_MS + 95_000, "n": 1}])})
    values = simulation.handles["counts"].states[state_name("counts")].of_key.values()
    assert {value[0] for value in values} == {START_MS + 30_000 - 1_001}
    assert all(
        latest_times(value[-1]) == {"source": {**read_to, "a": START_MS + 95_000}}
        for value in values
    )


def test_a_split_that_ends_holds_event_time_no_longer_and_moves_it_only_as_the_last(
    tmp_path: Path,
) -> None:
    splits = {"a": None, "b": None, "c": None}
    simulation = Simulation(windows(tmp_path), partitions={"source": splits})

    def watermark() -> int | None:
        values = simulation.handles["counts"].states[state_name("counts")].of_key.values()
        (watermark,) = {value[0] for value in values}
        return None if watermark is None else watermark + 1 - START_MS

    def at(*times: int) -> list[list[Row]]:
        return records([{"k": "x", "t": START_MS + time, "n": 1} for time in times])

    simulation.batch(source={"a": at(50_000), "b": at(20_000)})
    assert watermark() is None, "c has not begun"
    simulation.ended = {"c"}
    simulation.batch(source={"c": [[]]})
    assert watermark() == 20_000, "c has ended without a record"
    simulation.ended = {"a"}
    simulation.batch(source={"a": at(90_000)})
    assert watermark() == 20_000, "b goes on"
    simulation.ended = {"b"}
    simulation.batch(source={"b": at(30_000)})
    assert watermark() == 30_000
    assert not simulation.late


def test_a_batch_that_is_repeated_gives_the_same(tmp_path: Path) -> None:
    source = rows(6, 600, disorder_ms=300)
    results = []
    for _ in range(2):
        simulation = Simulation(
            windows(tmp_path, max_delay_ms=50, idle_after_ms="3s"),
            partitions={"source": {"a": None, "b": None, "c": None}},
        )
        for start in range(0, len(source), 100):
            split = "ab"[start // 100 % 2]
            simulation.batch(source={split: records(source[start : start + 100])})
        results.append((emitted(simulation), dict(simulation.late)))
    assert results[0] == results[1]
