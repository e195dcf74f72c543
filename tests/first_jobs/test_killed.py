"""The documented programs, killed with SIGKILL on their way: the README's revenue job, the
outbox to files while programs add rows that overlap, Parquet to Iceberg with changing
parallelism."""

import gzip
import json
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from random import Random
from threading import Thread
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from tests.first_jobs.programs import add_rows, rows_of
from tests.process.harness import killed_at_last, newest_slot, started, wait_until
from tests.support.depth import more_in_depth
from tests.support.documentation import BLOCKS, ROOT
from tests.support.iceberg import Lake
from tests.support.postgres import query


def start(directory: Path, job: str, *options: str) -> "subprocess.Popen[str]":
    """Run a job of a program in this directory, with a checkpoint all the time."""
    arguments = ("run", job, "--store", "store", "--quiet", "--checkpoint-interval", "20ms")
    return started(*arguments, *options, cwd=directory)


def kill_at(process: "subprocess.Popen[str]", store: Path, slot: int) -> None:
    """Kill with SIGKILL once this slot was written."""
    with killed_at_last(process):
        wait_until(lambda: newest_slot(store) >= slot, process)
    assert process.returncode == -signal.SIGKILL


def finish(process: "subprocess.Popen[str]") -> None:
    """To the end, which must be a good one."""
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors


ORDERS_TOO = """
pairs = orders.map(lambda row: (row.country, row.amount))
pairs.sink(IcebergSink(catalog, "sales.orders"), name="raw")
"""
COUNTRIES = ("at", "de", "fr", "nl")
RARELY = ("--checkpoint-interval", "150ms")  # a commit takes tens of milliseconds
ORDERS = 20_000


def test_revenue_in_an_iceberg_table_is_exact_after_kills_and_rescales(tmp_path: Path) -> None:
    create, program = (BLOCKS[f"sinks {n}"].replace("/srv", str(tmp_path)) for n in (3, 4))
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
    store = tmp_path / "store"
    for parallelism in more_in_depth([3], [2, 3, 1, 4]):
        process = start(tmp_path, "revenue:job", *RARELY, "--parallelism", str(parallelism))
        kill_at(process, store, newest_slot(store) + 3)
    finish(start(tmp_path, "revenue:job", *RARELY, "--parallelism", "2"))
    raw = Counter((row["country"], row["amount"]) for row in lake.rows("sales.orders"))
    assert raw == Counter(zip(countries, amounts, strict=True))
    assert len({s.timestamp_ms for s in lake.table("sales.orders").snapshots()}) > 2
    rows = [(row["country"], row["amount"]) for row in lake.rows("sales.revenue")]
    assert sorted(rows) == sorted(expected.items())
    for table in ("sales.revenue", "sales.orders"):
        assert (lake.announced(table), lake.unreferenced(table)) == ([], set())


Orders = Sequence[dict[str, object]]


def write(directory: Path, orders: Orders) -> None:
    """A plain file, a compressed one of one piece, one of many members, and one of many frames."""
    parts = [orders[at::4] for at in range(4)]
    add_rows(directory / "plain.jsonl", parts[0])
    whole, members, frames = (
        b"".join(json.dumps(order).encode() + b"\n" for order in part) for part in parts[1:]
    )

    def pieces(data: bytes) -> list[bytes]:
        return [data[at : at + 50_000] for at in range(0, len(data), 50_000)]

    (directory / "whole.jsonl.gz").write_bytes(gzip.compress(whole))
    (directory / "members.jsonl.gz").write_bytes(b"".join(map(gzip.compress, pieces(members))))
    (directory / "frames.jsonl.zst").write_bytes(b"".join(map(zstandard.compress, pieces(frames))))


def test_revenue_is_exact_after_a_kill_at_the_start_and_one_in_the_middle(tmp_path: Path) -> None:
    (tmp_path / "revenue.py").write_text(BLOCKS["README 0"])
    orders: Orders = [{"country": COUNTRIES[n % 7 % 4], "amount": n % 1000} for n in range(150_000)]
    write(tmp_path / "orders", orders)
    expected: Counter[object] = Counter()
    for order in orders:
        expected[order["country"]] += int(str(order["amount"]))
    options = ("revenue:job", "--input", "orders/", "--output", "revenue/")
    store = tmp_path / "store"
    kill_at(start(tmp_path, *options), store, 0)
    kill_at(start(tmp_path, *options), store, 4)
    finish(start(tmp_path, *options))
    found = [(row["country"], row["revenue"]) for row in rows_of(tmp_path / "revenue")]
    assert sorted(found) == sorted(expected.items())


KILLS = more_in_depth(1, 6)


def create_table() -> str:
    text = (ROOT / "docs" / "guides" / "sources.md").read_text()
    return text.partition("```sql\n")[2].partition("```")[0]


class Shop(Thread):
    """Transactions of several connections, some of them rolled back, until it is closed."""

    def __init__(self, conninfo: str, seed: int) -> None:
        super().__init__()
        self._conninfo = conninfo
        self._rng = Random(seed)
        self.committed: Counter[str] = Counter()
        self.closing = False

    def run(self) -> None:
        connections = [import_module("psycopg").connect(self._conninfo) for _ in range(4)]
        added: dict[Any, list[str]] = {connection: [] for connection in connections}
        number = 0
        while not self.closing:
            connection = self._rng.choice(connections)
            for _ in range(self._rng.randrange(4)):
                number += 1
                connection.execute(
                    "INSERT INTO outbox (kind, payload) VALUES ('order', %s)",
                    (json.dumps({"number": number}),),
                )
                added[connection].append(str(number))
            self._end(connection, added, commits=self._rng.random() < 0.8)
            time.sleep(0.001)
        for connection in connections:
            self._end(connection, added, commits=True)
            connection.close()

    def _end(self, connection: Any, added: dict[Any, list[str]], *, commits: bool) -> None:
        if commits:
            connection.commit()
            self.committed.update(added[connection])
        else:
            connection.rollback()
        added[connection] = []


def test_every_row_is_in_the_files_once_and_gone_from_the_table(
    conninfo: str, tmp_path: Path
) -> None:
    address = "postgresql://tide@db.example/shop"
    assert address in BLOCKS["sources 1"]
    (tmp_path / "outbox.py").write_text(BLOCKS["sources 1"].replace(address, conninfo))
    query(conninfo, create_table())
    shop = Shop(conninfo, seed=KILLS)
    shop.start()
    try:
        store = tmp_path / "store"
        for kill in range(KILLS):
            process = start(tmp_path, "outbox:job", "--parallelism", str(1 + kill % 2))
            kill_at(process, store, newest_slot(store) + 4)
    finally:
        shop.closing = True
        shop.join()
    process = start(tmp_path, "outbox:job")
    total = shop.committed.total()
    with killed_at_last(process):
        wait_until(
            lambda: len(rows_of(tmp_path / "events")) >= total and not left(conninfo), process
        )
    found = Counter(str(row["payload"]["number"]) for row in rows_of(tmp_path / "events"))
    assert found == shop.committed


def left(conninfo: str) -> int:
    return int(query(conninfo, "SELECT count(*) FROM outbox")[0][0])
