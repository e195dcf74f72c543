"""Small programs of strangers: each record counts once, whatever the job meets."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.first_jobs.programs import add_rows, rows_of, run
from tidelog import Callback, Files, Job, JsonLines, TidelogError

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
