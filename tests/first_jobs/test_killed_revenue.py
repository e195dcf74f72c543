"""The README's revenue job, killed while it starts and again in the middle."""

import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from tests.first_jobs.programs import add_rows, rows_of
from tests.support.documentation import BLOCKS

COUNTRIES = ("nl", "at", "de", "fr")
ORDERS = 150_000


def start(directory: Path) -> "subprocess.Popen[str]":
    """The command of the README, with a checkpoint all the time."""
    arguments = "run revenue:job --input orders/ --store store --output revenue/ --quiet"
    return subprocess.Popen(
        [sys.executable, "-m", "tidelog", *arguments.split(), "--checkpoint-interval", "20ms"],
        cwd=directory,
        stderr=subprocess.PIPE,
        text=True,
    )


def kill_at(process: "subprocess.Popen[str]", checkpoints: Path, slot: int) -> None:
    """Kill with SIGKILL once this slot was written."""
    while not any(int(path.stem) >= slot for path in checkpoints.glob("*.json")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.002)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL


def test_revenue_is_exact_after_a_kill_at_the_start_and_one_in_the_middle(tmp_path: Path) -> None:
    (tmp_path / "revenue.py").write_text(BLOCKS["README 0"])
    orders = [{"country": COUNTRIES[n % 7 % 4], "amount": n % 1000} for n in range(ORDERS)]
    add_rows(tmp_path / "orders" / "orders.jsonl", orders)
    expected: Counter[str] = Counter()
    for order in orders:
        expected[str(order["country"])] += int(order["amount"])

    checkpoints = tmp_path / "store" / "checkpoints"
    kill_at(start(tmp_path), checkpoints, 0)
    kill_at(start(tmp_path), checkpoints, 4)
    last = start(tmp_path)
    _, errors = last.communicate(timeout=120)
    assert last.returncode == 0, errors
    found = [(row["country"], row["revenue"]) for row in rows_of(tmp_path / "revenue")]
    assert sorted(found) == sorted(expected.items())
