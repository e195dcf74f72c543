"""A job whose keys or values get another type between two runs."""

import operator
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.first_jobs.programs import add_rows, rows_of, run
from tidelog import Files, Job, JsonLines, TidelogError


def orders(first: int) -> list[dict[str, Any]]:
    return [{"country": f"c{n % 7}", "amount": n} for n in range(first, first + 200)]


def sums(directory: Path, out: str, key: dict[str, Any], value: dict[str, Any]) -> Job:
    """The amounts per country so far, as they change."""
    job = Job("sums")
    rows = job.source(JsonLines(directory / "in", follow=out == "first")).map(lambda row: row)
    keyed = rows.key_by(key.pop("key_of", lambda row: row.country), **key)
    value_of = value.pop("value_of", lambda row: row.amount)
    combine = value.pop("combine", operator.add)
    keyed.aggregate(value_of, combine, emit_updates=True, **value).sink(
        Files(directory / out, fields=("country", "amount"))
    )
    return job


def first_half(directory: Path) -> None:
    add_rows(directory / "in" / "orders.jsonl", orders(0))

    def all_counted() -> bool:
        return final(directory / "first", lambda key: key) == expected(orders(0))

    run(sums(directory, "first", {}, {}), directory / "store", all_counted, parallelism=2)
    add_rows(directory / "in" / "orders.jsonl", orders(200))


def expected(rows: list[dict[str, Any]]) -> dict[str, int]:
    amounts: Counter[str] = Counter()
    for row in rows:
        amounts[row["country"]] += row["amount"]
    return dict(amounts)


def final(output: Path, country: Callable[[Any], str]) -> dict[str, int]:
    """The greatest sum of every country: sums only grow."""
    found: dict[str, int] = {}
    for row in rows_of(output):
        name = country(row["country"])
        found[name] = max(found.get(name, 0), int(row["amount"]))
    return found


def test_keys_that_became_tuples_are_refused_and_can_be_migrated(tmp_path: Path) -> None:
    first_half(tmp_path)
    with pytest.raises(TidelogError, match="aggregate") as refused:
        key: dict[str, Any] = {"key_of": lambda row: (row.country,)}
        run(sums(tmp_path, "refused", key, {}), tmp_path / "store", parallelism=2)
    assert "expected str" in str(refused.value)
    assert "found tuple[str]" in str(refused.value)
    assert rows_of(tmp_path / "refused") == []

    key = {
        "key_of": lambda row: (row.country,),
        "key_type": tuple[str],
        "migrate": lambda old: (old,),
    }
    run(sums(tmp_path, "second", key, {}), tmp_path / "store", parallelism=2)
    assert final(tmp_path / "second", lambda key: key[0]) == expected(orders(0) + orders(200))


def test_sums_that_became_text_are_refused_and_can_be_migrated(tmp_path: Path) -> None:
    first_half(tmp_path)
    text = {
        "value_of": lambda row: str(row.amount),
        "combine": lambda a, b: str(int(a) + int(b)),
    }
    with pytest.raises(TidelogError, match="aggregate") as refused:
        run(sums(tmp_path, "refused", {}, dict(text)), tmp_path / "store", parallelism=2)
    assert "found str" in str(refused.value)
    assert "int" in str(refused.value)
    assert rows_of(tmp_path / "refused") == []

    migrated = {**text, "value_type": str, "migrate": str}
    run(sums(tmp_path, "second", {}, migrated), tmp_path / "store", parallelism=2)
    assert final(tmp_path / "second", lambda key: key) == expected(orders(0) + orders(200))
