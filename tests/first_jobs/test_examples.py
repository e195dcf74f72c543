"""The programs of docs/examples, run by the commands that they print, give what Python gives."""

import json
import re
import shutil
import sqlite3
import subprocess
import sys
from collections import Counter, defaultdict
from csv import DictReader
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.first_jobs.programs import rows_of
from tests.support.documentation import ROOT

EXAMPLES = ROOT / "docs" / "examples"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py"))
Rows = list[dict[str, Any]]


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A copy of the folder, in which a user would try the programs."""
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    return tmp_path / "examples"


def printed(name: str) -> list[str]:
    text = (EXAMPLES / f"{name}.py").read_text()
    [command] = re.findall(r"^(?:tidelog run|python) .*$", text, re.MULTILINE)
    return str(command).split()


def try_it(here: Path, name: str, *options: str) -> str:
    """Run a program twice, as somebody would after an interruption; what the first run printed."""
    program, *arguments = printed(name)
    start = ["-m", "tidelog"] if program == "tidelog" else []
    outputs = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, *start, *arguments, *options],
            cwd=here,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        outputs.append(done.stdout)
    return outputs[0]


def data(name: str) -> Rows:
    files = sorted((EXAMPLES / "data" / name).iterdir())
    return [json.loads(line) for file in files for line in file.open()]


def table(name: str) -> Rows:
    [file] = (EXAMPLES / "data" / name).iterdir()
    with file.open(newline="") as lines:
        return list(DictReader(lines))


def bag(rows: Rows) -> Counter[str]:
    return Counter(json.dumps(row, sort_keys=True) for row in rows)


def test_revenue(here: Path) -> None:
    try_it(here, "revenue")
    totals: Counter[str] = Counter()
    for order in data("orders"):
        totals[order["country"]] += order["amount"]
    found = {row["country"]: row["revenue"] for row in rows_of(here / "out/revenue")}
    assert found == totals


def test_stock(here: Path) -> None:
    try_it(here, "stock")
    stock: Counter[str] = Counter()
    for change in table("stock"):
        stock[change["product"]] += int(change["pieces"])
    database = sqlite3.connect(here / "out/stock.db")
    assert dict(database.execute("SELECT product, pieces FROM stock")) == stock


def test_large_orders(here: Path) -> None:
    try_it(here, "large_orders")
    orders = data("orders")
    assert bag(rows_of(here / "out/orders/large")) == bag([o for o in orders if o["amount"] >= 40])
    lines = [line for file in (here / "out/orders/lines").glob("part-*") for line in file.open()]
    assert sorted(lines) == sorted(
        f"{o['order']}: {o['amount']} from {o['country']}\n" for o in orders
    )


def test_top_products(here: Path) -> None:
    try_it(here, "top_products")
    hours: dict[tuple[str, int], Rows] = defaultdict(list)
    for order in data("orders"):
        hours[order["country"], order["ms"] // 3_600_000 * 3_600_000].append(order)
    expected = [
        {"country": country, "hour_ms": hour, "rank": rank, "product": order["product"]}
        for (country, hour), orders in hours.items()
        for rank, order in enumerate(sorted(orders, key=lambda o: -o["amount"])[:2], 1)
    ]
    assert bag(rows_of(here / "out/top")) == bag(expected)


def test_visits(here: Path) -> None:
    try_it(here, "visits")
    sessions: dict[str, Rows] = defaultdict(list)
    for order in data("orders"):
        ms, visits = order["ms"], sessions[order["user"]]
        if not visits or ms > visits[-1]["end_ms"]:
            visits.append({"user": order["user"], "start_ms": ms, "end_ms": ms, "spent": 0})
        visits[-1]["end_ms"] = ms + 600_000
        visits[-1]["spent"] += order["amount"]
    expected = [visit for visits in sessions.values() for visit in visits]
    assert bag(rows_of(here / "out/visits")) == bag(expected)


def test_payments(here: Path) -> None:
    try_it(here, "payments")
    payments = {payment["order"]: payment for payment in data("payments")}
    expected = []
    for order in data("orders"):
        payment = payments.get(order["order"])
        in_time = payment is not None and payment["ms"] - order["ms"] <= 600_000
        expected.append({"order": order["order"], "cents": payment["cents"] if in_time else None})
    assert bag(rows_of(here / "out/paid")) == bag(expected)


def test_names(here: Path) -> None:
    try_it(here, "names")
    products = {product["product"]: product for product in table("products")}
    expected = []
    for order in data("orders"):
        product = products[order["product"]]
        price = str(order["amount"] * Decimal(product["price"]))
        expected.append({"order": order["order"], "name": product["name"], "price": price})
    assert bag(rows_of(here / "out/names")) == bag(expected)


def test_first_orders(here: Path) -> None:
    try_it(here, "first_orders")
    first: dict[tuple[str, str], dict[str, Any]] = {}
    for order in data("orders"):
        first.setdefault((order["user"], order["product"]), order)
    found = {(o["user"], o["product"]) for o in rows_of(here / "out/first")}
    assert found == first.keys() and len(rows_of(here / "out/first")) == len(first)


@pytest.mark.parametrize("buffer_records", ["1", "8192"])
def test_silent_sensors(here: Path, buffer_records: str) -> None:
    try_it(here, "silent_sensors", "--buffer-records", buffer_records)
    newest: dict[str, dict[str, Any]] = {}
    expected = []
    for reading in data("readings"):
        before = newest.get(reading["sensor"])
        if before is not None and reading["ms"] - before["ms"] > 300_000:
            expected.append(before)
        newest[reading["sensor"]] = reading
    expected += newest.values()  # at the end of the data all timers fire
    found = [(row["sensor"], row["silent_since_ms"]) for row in rows_of(here / "out/silent")]
    assert sorted(found) == sorted((row["sensor"], row["ms"]) for row in expected)
    assert len(found) > 3


def test_worker(here: Path) -> None:
    counts = Counter(order["user"] for order in data("orders"))
    assert dict(line.split() for line in try_it(here, "worker").splitlines()) == {
        user: str(count) for user, count in counts.items()
    }


def test_every_program_is_tried_here_and_named_on_the_page() -> None:
    text, page = Path(__file__).read_text(), (EXAMPLES / "index.md").read_text()
    assert [name for name in NAMES if f"def test_{name}(" not in text] == []
    assert [name for name in NAMES if f"{name}.py" not in page] == []
    assert len(NAMES) == 10
