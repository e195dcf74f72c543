"""A job that loses, renames and gains operators between its runs."""

import operator
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.first_jobs.programs import add_rows, rows_of, run
from tidelog import Files, Job, JsonLines, TidelogError


def visits(first: int) -> list[dict[str, Any]]:
    return [{"page": f"p{n % 5}", "user": f"u{n % 11}"} for n in range(first, first + 120)]


def first_version(directory: Path) -> Job:
    job = Job("visits")
    rows = job.source(JsonLines(directory / "in", follow=True))
    known = rows.filter(lambda row: row.page != "p4", name="known").map(
        lambda row: row.asDict(), name="as-dict"
    )
    pages = known.key_by(lambda row: row["page"]).aggregate(
        lambda _: 1, operator.add, emit_updates=True, name="pages"
    )
    pages.sink(Files(directory / "pages", fields=("page", "visits")), name="pages-out")
    users = known.key_by(lambda row: row["user"]).aggregate(
        lambda _: 1, operator.add, emit_updates=True, name="users"
    )
    users.sink(Files(directory / "users", fields=("user", "visits")), name="users-out")
    return job


def second_version(directory: Path) -> Job:
    """The filter has another name, the map is gone, and so are the visits by user."""
    job = Job("visits")
    rows = job.source(JsonLines(directory / "in"))
    known = rows.filter(lambda row: row.page != "p4", name="not-p4")
    pages = known.key_by(lambda row: row.page).aggregate(
        lambda _: 1, operator.add, emit_updates=True, name="pages"
    )
    pages.sink(Files(directory / "pages", fields=("page", "visits")), name="pages-out")
    return job


def counts(output: Path, field: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for row in rows_of(output):
        found[row[field]] = max(found.get(row[field], 0), row["visits"])
    return found


def expected(rows: list[dict[str, Any]], field: str) -> Counter[str]:
    return Counter(row[field] for row in rows if row["page"] != "p4")


def test_only_an_operator_with_state_is_missed_and_only_until_it_is_named(tmp_path: Path) -> None:
    add_rows(tmp_path / "in" / "visits.jsonl", visits(0))

    def all_counted() -> bool:
        return all(
            counts(tmp_path / f"{field}s", field) == expected(visits(0), field)
            for field in ("page", "user")
        )

    run(first_version(tmp_path), tmp_path / "store", all_counted, parallelism=2)
    add_rows(tmp_path / "in" / "visits.jsonl", visits(120))
    with pytest.raises(TidelogError, match="users") as refused:
        run(second_version(tmp_path), tmp_path / "store", parallelism=2)
    assert "allow-dropped-state users" in str(refused.value), str(refused.value)
    assert counts(tmp_path / "pages", "page") == expected(visits(0), "page")

    dropped = {"allow_dropped_state": ("users",)}
    run(second_version(tmp_path), tmp_path / "store", parallelism=2, **dropped)
    assert counts(tmp_path / "pages", "page") == expected(visits(0) + visits(120), "page")
    assert counts(tmp_path / "users", "user") == expected(visits(0), "user")
