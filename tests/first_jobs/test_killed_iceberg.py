"""Parquet in, counts, Iceberg out: the program of the docs, killed, with changing parallelism."""

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.first_jobs.killed import finish, kill_at, last_slot, start
from tests.support.depth import more_in_depth
from tests.support.documentation import BLOCKS
from tests.support.iceberg import Lake

ORDERS_TOO = """
orders.map(lambda row: (row.country, row.amount)).sink(Iceberg(catalog, "sales.orders"), name="raw")
"""
COUNTRIES = ("at", "de", "fr", "nl")
RARELY = ("--checkpoint-interval", "150ms")  # a commit takes tens of milliseconds
ORDERS = 20_000


def test_revenue_in_an_iceberg_table_is_exact_after_kills_and_rescales(tmp_path: Path) -> None:
    create, program = (BLOCKS[f"sinks {n}"].replace("/srv", str(tmp_path)) for n in (2, 3))
    exec(create)
    (tmp_path / "revenue.py").write_text(program + ORDERS_TOO)
    lake = Lake(tmp_path, "lake.db", "lake", name="lake")
    lake.create("sales.orders", country="string", amount="long")
    countries = [COUNTRIES[n % 7 % 4] for n in range(ORDERS)]
    amounts = [n % 1000 for n in range(ORDERS)]
    expected: Counter[str] = Counter()
    for country, amount in zip(countries, amounts, strict=True):
        expected[country] += amount
    (tmp_path / "orders").mkdir()
    for file in range(10):
        mine = slice(file, None, 10)
        columns = {"country": countries[mine], "amount": amounts[mine]}
        pq.write_table(pa.table(columns), tmp_path / f"orders/{file}.parquet", row_group_size=300)
    checkpoints = tmp_path / "store" / "checkpoints"
    for parallelism in more_in_depth([3], [2, 3, 1, 4]):
        process = start(tmp_path, "revenue:job", *RARELY, "--parallelism", str(parallelism))
        kill_at(process, checkpoints, last_slot(checkpoints) + 3)
    finish(start(tmp_path, "revenue:job", *RARELY, "--parallelism", "2"))
    raw = Counter((row["country"], row["amount"]) for row in lake.rows("sales.orders"))
    assert raw == Counter(zip(countries, amounts, strict=True))
    assert len({s.timestamp_ms for s in lake.table("sales.orders").snapshots()}) > 2
    rows = [(row["country"], row["amount"]) for row in lake.rows("sales.revenue")]
    assert sorted(rows) == sorted(expected.items())
    for table in ("sales.revenue", "sales.orders"):
        assert (lake.announced(table), lake.unreferenced(table)) == ([], set())
