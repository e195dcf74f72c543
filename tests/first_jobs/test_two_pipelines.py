"""Two pipelines in one job that have nothing to do with each other; one ends early."""

import operator
from collections import Counter
from pathlib import Path
from typing import Any

from tests.first_jobs.programs import add_rows, rows_of, run
from tidelog import Files, Job, JsonLines


def orders(first: int) -> list[dict[str, Any]]:
    return [{"country": f"c{n % 6}", "amount": n} for n in range(first, first + 150)]


def clicks(first: int) -> list[dict[str, Any]]:
    return [{"page": f"p{n % 4}", "number": n} for n in range(first, first + 90)]


def two(directory: Path, *, follow: bool) -> Job:
    """Orders come to an end; clicks are followed."""
    job = Job("two")
    revenue = job.source(JsonLines(directory / "orders"), name="orders")
    sums = revenue.key_by(lambda row: row.country).aggregate(lambda r: r.amount, operator.add)
    sums.sink(Files(directory / "revenue", fields=("country", "amount")), name="revenue")
    pages = job.source(JsonLines(directory / "clicks", follow=follow), name="clicks")
    views = pages.map(lambda row: (row.page, row.number))
    views.sink(Files(directory / "views", fields=("page", "number")), name="views")
    return job


def test_what_has_ended_is_out_while_the_rest_goes_on_and_never_comes_again(tmp_path: Path) -> None:
    expected: Counter[str] = Counter()
    for order in orders(0):
        expected[order["country"]] += order["amount"]
    add_rows(tmp_path / "orders" / "orders.jsonl", orders(0))
    add_rows(tmp_path / "clicks" / "clicks.jsonl", clicks(0))

    def revenue() -> dict[str, int]:
        return {row["country"]: row["amount"] for row in rows_of(tmp_path / "revenue")}

    def ended_early() -> bool:
        return revenue() == expected and len(rows_of(tmp_path / "views")) == 90

    run(two(tmp_path, follow=True), tmp_path / "store", ended_early, parallelism=2)
    # What appears behind the end of a source that does not follow is not read.
    add_rows(tmp_path / "orders" / "more.jsonl", orders(1_000))
    add_rows(tmp_path / "clicks" / "clicks.jsonl", clicks(90))
    last = run(two(tmp_path, follow=False), tmp_path / "store", parallelism=2)
    assert last.restored_slot is not None and last.stopped is None
    assert len(rows_of(tmp_path / "revenue")) == len(expected) and revenue() == expected
    assert sorted(row["number"] for row in rows_of(tmp_path / "views")) == list(range(180))
