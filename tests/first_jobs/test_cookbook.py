"""The recipes of the cookbook do what they promise."""

import csv
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.first_jobs.programs import add_rows, rows_of, run
from tests.process.harness import killed_at_last, started, tidelog, wait_until
from tests.support.documentation import BLOCKS
from tidelog import FileSink, Job, JsonLinesSource, Row, StatefulProcessor, StatefulProcessorHandle


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Programs read and write below the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def module_of(block: str) -> Any:
    """A printed program, as a module of the working directory."""
    name = block.replace(" ", "_")
    Path(f"{name}.py").write_text(BLOCKS[block])
    return import_module(name)


def orders(count: int, amount: int = 1) -> list[dict[str, Any]]:
    return [{"country": ("nl", "de")[n % 2], "amount": amount} for n in range(count)]


def test_the_test_of_a_job_passes(tmp_path: Path) -> None:
    (tmp_path / "test_revenue.py").write_text(BLOCKS["cookbook 0"])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_revenue.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout


def nightly(here: Path) -> str:
    """What the job says that runs to the end of its input."""
    options = ("--input", "orders", "--output", "revenue.db", "--store", "store")
    done = tidelog("run", "nightly.py:job", *options, cwd=here)
    assert done.returncode == 0, done.stderr
    return str(done.stderr)


def revenue(here: Path) -> dict[str, int]:
    with closing(sqlite3.connect(here / "revenue.db")) as database:
        return dict(database.execute("SELECT country, revenue FROM revenue"))


def test_a_nightly_job_adds_what_is_new(here: Path) -> None:
    (here / "nightly.py").write_text(BLOCKS["cookbook 1"])
    add_rows(here / "orders" / "monday.jsonl", orders(10))
    nightly(here)
    assert revenue(here) == {"nl": 5, "de": 5}
    add_rows(here / "orders" / "monday.jsonl", orders(2, amount=10))
    add_rows(here / "orders" / "tuesday.jsonl", orders(4))
    nightly(here)
    assert revenue(here) == {"nl": 17, "de": 17}
    assert "nothing new since checkpoint" in nightly(here)
    assert revenue(here) == {"nl": 17, "de": 17}


def test_two_jobs_in_a_row_count_each_valid_order_once_though_both_are_killed(here: Path) -> None:
    (here / "jobs.py").write_text(BLOCKS["cookbook 2"])
    (here / "clean").mkdir()
    for number in range(3):
        counted = newest(here)
        rows = [*orders(1000), *({"country": "nl"} for _ in range(7))]
        add_rows(here / "orders" / f"{number}.jsonl", rows)
        with both_jobs(here) as jobs:
            wait_until(lambda counted=counted: newest(here) != counted, jobs["count"])
            if number == 2:
                wait_until(lambda: newest(here) == {"nl": 1500, "de": 1500}, jobs["count"])
                for name, process in jobs.items():
                    assert tidelog("stop", f"{name}-store", cwd=here).returncode == 0
                    assert process.wait(60) == 0
    assert len(rows_of(here / "clean")) == 3000
    counts = [(row["country"], row["orders"]) for row in rows_of(here / "counts")]
    assert len(set(counts)) == len(counts)


@contextmanager
def both_jobs(here: Path) -> Iterator[dict[str, "subprocess.Popen[str]"]]:
    """Processes of both jobs of jobs.py, killed at the end if they still run."""
    with ExitStack() as processes:
        jobs = {}
        for name in ("clean", "count"):
            command = ("run", f"jobs.py:{name}", "--store", f"{name}-store", "--quiet")
            jobs[name] = processes.enter_context(killed_at_last(started(*command, cwd=here)))
        yield jobs


def newest(here: Path) -> dict[str, int]:
    counts: dict[str, int] = {}
    for row in rows_of(here / "counts") if (here / "counts").exists() else ():
        counts[row["country"]] = max(counts.get(row["country"], 0), row["orders"])
    return counts


def test_a_field_of_a_stored_value_is_renamed(here: Path) -> None:
    recipe = module_of("cookbook 4")

    def earlier() -> Job:
        total = recipe.Total
        job = Job("totals")
        by_country = job.source(JsonLinesSource("orders/", follow=True)).key_by(
            lambda order: order.country
        )
        totals = by_country.aggregate(
            lambda order: total(1, order.amount),
            lambda a, b: total(a[0] + b[0], a[1] + b[1]),
            emit_updates=True,
        )
        totals.sink(FileSink("earlier/", fields=("country", "total")))
        return job

    add_rows(here / "orders" / "all.jsonl", orders(10))
    run(earlier(), here / "store", until=lambda: sum(r["total"][0] == 5 for r in found(here)) == 2)
    add_rows(here / "orders" / "all.jsonl", orders(4, amount=10))
    result = run(recipe.job, here / "store", allow_non_restored_state=("sink",))
    assert result.restored_checkpoint is not None
    totals = {row.pop("country"): row for row in rows_of(here / "totals")}
    assert totals == {name: {"orders": 7, "amount": 25} for name in ("nl", "de")}


class AmountByCountry(StatefulProcessor):
    """The processor of the recipe before its field was renamed."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.total = handle.getValueState("total", "amount long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        (amount,) = self.total.get() or (0,)
        amount += sum(row.cents // 100 for row in rows)
        self.total.update((amount,))
        yield Row(country=key[0], amount=amount)


def test_a_field_of_a_state_of_a_processor_is_renamed(here: Path) -> None:
    def totals(processor: type[StatefulProcessor]) -> Job:
        job = Job("totals")
        by_country = job.source(JsonLinesSource("orders/", follow=True)).key_by(
            lambda order: order.country
        )
        rows = by_country.transform_with_state(processor, name="total")
        rows.map(lambda row: row.asDict()).sink(FileSink("totals/", roll_every=1))
        return job

    def emits(row: dict[str, Any]) -> bool:
        rows = rows_of(here / "totals") if (here / "totals").exists() else []
        return all({"country": country, **row} in rows for country in ("nl", "de"))

    def paid(count: int) -> list[dict[str, Any]]:
        return [{"country": order["country"], "cents": 500} for order in orders(count)]

    add_rows(here / "orders" / "all.jsonl", paid(2))
    run(totals(AmountByCountry), here / "store", until=lambda: emits({"amount": 5}))
    add_rows(here / "orders" / "all.jsonl", paid(2))
    renamed = module_of("cookbook 5").Totals
    run(totals(renamed), here / "store", until=lambda: emits({"cents": 1000, "orders": 2}))


def found(here: Path) -> list[dict[str, Any]]:
    return rows_of(here / "earlier") if (here / "earlier").exists() else []


def test_each_order_is_looked_up_in_a_table(here: Path) -> None:
    (here / "products.csv").write_text('product,name,price\n7,"Tea, green",3\n8,Salt,1\n')
    rows = [{"order": n, "product": str(6 + n % 3), "pieces": n} for n in range(9)]
    add_rows(here / "orders" / "all.jsonl", rows)
    run(module_of("cookbook 6").job, here / "store", parallelism=2)
    known = {"7": ("Tea, green", 3), "8": ("Salt", 1)}
    expected = []
    for row in rows:
        name, price = known.get(row["product"], (None, None))
        cost = row["pieces"] * price if price else None
        expected.append({"order": row["order"], "name": name, "price": cost})
    assert sorted(rows_of(here / "named"), key=lambda row: row["order"]) == expected


def test_csv_becomes_csv(here: Path) -> None:
    (here / "sales").mkdir()
    text = 'shop,amount\n"Ada, ltd.",1.5\nbob,2\n"Ada, ltd.",0.25\n'
    (here / "sales" / "monday.csv").write_text(text)
    run(module_of("cookbook 7").job, here / "store")
    [part] = (here / "totals").glob("part-*.txt")
    with part.open(newline="") as lines:
        assert list(csv.reader(lines)) == [["Ada, ltd.", "1.75"], ["bob", "2.0"]]
