"""An output that cannot be written for a while: the job stops, is started again, and goes on."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.first_jobs.programs import add_rows, rows_of, run
from tidelog import Callback, Files, Job, JsonLines, TidelogError

ROWS = [{"number": n, "payer": f"p{n % 7}"} for n in range(300)]


def numbered(directory: Path, *, follow: bool = False) -> Job:
    job = Job("payments")
    rows = job.source(JsonLines(directory / "in", follow=follow))
    rows.map(lambda row: row.asDict()).sink(Files(directory / "out"))
    return job


def test_files_have_every_row_once_after_their_directory_was_no_directory(tmp_path: Path) -> None:
    file, store = tmp_path / "in" / "payments.jsonl", tmp_path / "store"
    out, away = tmp_path / "out", tmp_path / "away"
    add_rows(file, ROWS[:100])

    def break_the_output() -> Iterator[bool]:
        while len(rows_of(out)) < 100:
            yield False
        out.rename(away)
        out.write_text("not a directory")
        add_rows(file, ROWS[100:])
        while True:
            yield False

    broken = break_the_output()
    with pytest.raises(TidelogError) as failed:
        run(numbered(tmp_path, follow=True), store, lambda: next(broken))
    assert str(out) in str(failed.value)
    for _ in range(2):
        with pytest.raises(TidelogError) as failed:
            run(numbered(tmp_path), store)
        assert str(out) in str(failed.value)
    out.unlink()
    away.rename(out)
    run(numbered(tmp_path), store)
    assert sorted(rows_of(out), key=lambda row: row["number"]) == ROWS


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
