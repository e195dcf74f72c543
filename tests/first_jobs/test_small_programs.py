"""Small programs of strangers: each record counts once, whatever the job meets."""

import operator
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.first_jobs.programs import add_rows, rows_of, run
from tidelog import Callback, Files, Job, JsonLines, OutputTag, TidelogError

Numbers = dict[str, list[int]]


def copy(directory: Path, *, follow: bool) -> Job:
    job = Job("copy")
    events = job.source(JsonLines(directory / "in", follow=follow))
    named = events.map(lambda row: (row.file, row.number))
    named.sink(Files(directory / "out", fields=("file", "number")))
    return job


def copied(directory: Path) -> Numbers:
    """What came out of each file, in the order of the sink."""
    found: Numbers = {}
    for row in rows_of(directory / "out"):
        found.setdefault(row["file"], []).append(row["number"])
    return found


def test_every_line_comes_once_and_in_order_through_a_savepoint(tmp_path: Path) -> None:
    written: Numbers = {"a": [], "b": []}

    def grow(name: str, count: int) -> None:
        numbers = range(len(written[name]), len(written[name]) + count)
        add_rows(tmp_path / "in" / f"{name}.jsonl", [{"file": name, "number": n} for n in numbers])
        written[name] += numbers

    def growing(steps: int) -> Callable[[], bool]:
        """Grows the files whenever all is copied, and is true after some steps of that."""
        left = iter(range(steps))

        def enough() -> bool:
            if copied(tmp_path) != written:
                return False
            step = next(left, None)
            if step is not None:
                grow("ab"[step % 2], 7)
            return step is None

        return enough

    grow("a", 5)
    grow("b", 3)
    run(copy(tmp_path, follow=True), tmp_path / "store", growing(4), parallelism=4)
    # While nobody reads: half a line, its rest, and a file that is new.
    grow("a", 10)
    written["c"] = []
    grow("c", 20)
    with (tmp_path / "in" / "b.jsonl").open("a") as file:
        file.write('{"file": "b", "num')
    until = lambda: len(copied(tmp_path).get("c", [])) == 20  # noqa: E731
    run(copy(tmp_path, follow=True), tmp_path / "store", until, parallelism=4)
    with (tmp_path / "in" / "b.jsonl").open("a") as file:
        file.write(f'ber": {len(written["b"])}}}\n')
    written["b"].append(len(written["b"]))
    run(copy(tmp_path, follow=True), tmp_path / "store", growing(3), parallelism=4)
    assert copied(tmp_path) == written


EACH = 3_000


def test_every_piece_arrives_once(tmp_path: Path) -> None:
    rows = [{"document": f"d{n}", "pieces": EACH if n == 2 else n} for n in range(5)]
    add_rows(tmp_path / "in" / "documents.jsonl", rows)
    job = Job("pieces")
    pieces = job.source(JsonLines(tmp_path / "in")).flat_map(
        lambda row: ((row.document, n) for n in range(row.pieces))
    )
    pieces.sink(Files(tmp_path / "pieces", fields=("document", "piece")), name="pieces")
    totals = pieces.key_by(lambda piece: piece[1] % 101).aggregate(
        lambda piece: piece[1], lambda a, b: a + b
    )
    totals.sink(Files(tmp_path / "totals", fields=("rest", "total")), name="totals")
    small = {"buffer_records": 16, "buffer_bytes": 512, "channel_buffers": 1}
    run(job, tmp_path / "store", parallelism=2, **small)

    expected = [(row["document"], n) for row in rows for n in range(row["pieces"])]
    found = [(row["document"], row["piece"]) for row in rows_of(tmp_path / "pieces")]
    assert sorted(found) == sorted(expected)
    sums: Counter[int] = Counter()
    for _, n in expected:
        sums[n % 101] += n
    totals_found = [(row["rest"], row["total"]) for row in rows_of(tmp_path / "totals")]
    assert sorted(totals_found) == sorted(sums.items())


ROWS = [{"number": n, "payer": f"p{n % 7}"} for n in range(300)]


def test_calls_come_at_least_once_and_the_files_beside_them_exactly_once(tmp_path: Path) -> None:
    add_rows(tmp_path / "in" / "payments.jsonl", ROWS)
    called: list[int] = []

    def job(call: Callable[[Any], object]) -> Job:
        job = Job("payments")
        rows = job.source(JsonLines(tmp_path / "in")).map(lambda row: row.asDict())
        rows.sink(Callback(call), name="call")
        rows.sink(Files(tmp_path / "out"), name="files")
        return job

    def fail_in_the_middle(row: dict[str, Any]) -> None:
        if row["number"] == 150:
            raise ConnectionError("the service is away")
        called.append(row["number"])

    for _ in range(2):
        with pytest.raises((TidelogError, ConnectionError), match="the service is away"):
            run(job(fail_in_the_middle), tmp_path / "store", parallelism=2, buffer_records=20)
    run(job(lambda row: called.append(row["number"])), tmp_path / "store", parallelism=2)
    assert set(called) == set(range(300))
    assert sorted(rows_of(tmp_path / "out"), key=lambda row: row["number"]) == ROWS


MINUTE = 60_000
DEVICES = [f"d{n}" for n in range(6)]


def sums(directory: Path, *, follow: bool) -> Job:
    late = OutputTag("late")
    job = Job("readings")
    windows = (
        job.source(JsonLines(directory / "in", follow=follow))
        .event_time(lambda row: row.time_ms, max_delay_ms=1_000)
        .key_by(lambda row: row.device)
        .window(3 * MINUTE, MINUTE, value_of=lambda row: row.value, combine=operator.add, late=late)
    )
    windows.sink(Files(directory / "sums", fields=("device", "start", "value")))
    windows.side_output(late).sink(Files(directory / "late"), name="late")
    return job


def test_a_late_reading_counts_in_its_windows_that_are_open(tmp_path: Path) -> None:
    file = tmp_path / "in" / "readings.jsonl"
    in_time = [
        {"device": device, "time_ms": minute * MINUTE + 1_000 * n, "value": 10**minute}
        for minute in range(6)
        for n, device in enumerate(DEVICES)
    ]
    add_rows(file, in_time)

    def five_windows_are_out() -> bool:
        return len(rows_of(tmp_path / "sums")) == 5 * len(DEVICES)

    store = tmp_path / "store"
    run(sums(tmp_path, follow=True), store, five_windows_are_out, parallelism=2)
    # The windows of the first two minutes have fired, and one of three of the fifth minute.
    late = [{"device": device, "time_ms": n, "value": 7} for n, device in enumerate(DEVICES)]
    partly = [{"device": "d0", "time_ms": 4 * MINUTE + 1, "value": 5}]
    add_rows(file, [*late, *partly])
    run(sums(tmp_path, follow=False), store, parallelism=3)

    expected: Counter[tuple[str, int]] = Counter()
    for row in in_time:
        for minute in range(3):
            start = (row["time_ms"] // MINUTE - minute) * MINUTE
            expected[row["device"], start] += row["value"]
    expected["d0", 3 * MINUTE] += 5
    expected["d0", 4 * MINUTE] += 5
    found = [((row["device"], row["start"]), row["value"]) for row in rows_of(tmp_path / "sums")]
    assert sorted(found) == sorted(expected.items())
    assert sorted(rows_of(tmp_path / "late"), key=lambda row: row["device"]) == late
