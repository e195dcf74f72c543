"""The README's revenue job, killed while it starts and again in the middle."""

import gzip
import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import zstandard

from tests.first_jobs.killed import finish, kill_at, start
from tests.first_jobs.programs import add_rows, rows_of
from tests.support.documentation import BLOCKS

COUNTRIES = ("nl", "at", "de", "fr")
Orders = Sequence[dict[str, object]]


def plain(directory: Path, orders: Orders) -> None:
    add_rows(directory / "orders.jsonl", orders)


def compressed(directory: Path, orders: Orders) -> None:
    """A file of one piece, one of many members, and one of many frames."""
    directory.mkdir()
    lines = [json.dumps(order).encode() + b"\n" for order in orders]
    third = len(lines) // 3
    parts = [lines[:third], lines[third : 2 * third], lines[2 * third :]]
    whole, members, frames = map(b"".join, parts)

    def pieces(data: bytes) -> list[bytes]:
        return [data[at : at + 50_000] for at in range(0, len(data), 50_000)]

    (directory / "whole.jsonl.gz").write_bytes(gzip.compress(whole))
    (directory / "members.jsonl.gz").write_bytes(b"".join(map(gzip.compress, pieces(members))))
    (directory / "frames.jsonl.zst").write_bytes(b"".join(map(zstandard.compress, pieces(frames))))


@pytest.mark.parametrize("write", [plain, compressed], ids=["plain", "compressed"])
def test_revenue_is_exact_after_a_kill_at_the_start_and_one_in_the_middle(
    write: Callable[[Path, Orders], None], tmp_path: Path
) -> None:
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
