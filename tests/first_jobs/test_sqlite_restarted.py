"""A table of SQLite, written by a job that is stopped and started again twice."""

import sqlite3
from pathlib import Path
from typing import Any

from tests.first_jobs.programs import add_rows, run
from tidelog import Job, JsonLines, Sqlite


def test_the_table_has_every_payment_once(tmp_path: Path) -> None:
    seen: list[Any] = []

    def payment(row: Any) -> tuple[int, str, float, str | None]:
        seen.append(row)
        return row.number, row.payer, row.amount, row.note

    def job(*, follow: bool) -> Job:
        job = Job("payments")
        rows = job.source(JsonLines(tmp_path / "in", follow=follow)).map(payment)
        columns = {"number": "integer", "payer": "text", "amount": "real", "note": "text"}
        rows.sink(Sqlite(tmp_path / "bank.db", "payments", columns))
        return job

    def payments(start: int) -> list[dict[str, Any]]:
        notes = (None, "gift", "Grüße")
        return [
            {"number": n, "payer": f"p{n % 5}", "amount": n / 4, "note": notes[n % 3]}
            for n in range(start, start + 100)
        ]

    expected: list[dict[str, Any]] = []
    for part in range(3):
        for file in range(2):
            rows = payments(200 * part + 100 * file)
            add_rows(tmp_path / "in" / f"{file}.jsonl", rows)
            expected += rows
        half = 200 * part + 100
        until = None if part == 2 else lambda half=half: len(seen) >= half
        run(job(follow=part < 2), tmp_path / "store", until, parallelism=2)
    with sqlite3.connect(tmp_path / "bank.db") as bank:
        found = bank.execute("SELECT number, payer, amount, note FROM payments ORDER BY number")
        assert found.fetchall() == [tuple(row.values()) for row in expected]
    bank.close()
