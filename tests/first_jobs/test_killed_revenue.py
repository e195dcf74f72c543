"""The README's revenue job, killed while it starts and again in the middle."""

import gzip
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import zstandard

from tests.first_jobs.killed import finish, kill_at, start
from tests.first_jobs.programs import add_rows, rows_of
from tests.support.documentation import BLOCKS

COUNTRIES = ("nl", "at", "de", "fr")
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
    checkpoints = tmp_path / "store" / "checkpoints"
    kill_at(start(tmp_path, *options), checkpoints, 0)
    kill_at(start(tmp_path, *options), checkpoints, 4)
    finish(start(tmp_path, *options))
    found = [(row["country"], row["revenue"]) for row in rows_of(tmp_path / "revenue")]
    assert sorted(found) == sorted(expected.items())
