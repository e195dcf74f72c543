"""An output that cannot be written for a while: the job stops, is started again, and goes on."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.first_jobs.programs import add_rows, rows_of, run
from tidelog import Callback, Files, Job, JsonLines, TidelogError

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
