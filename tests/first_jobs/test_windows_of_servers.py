"""Requests of several servers in windows of ten minutes: the same at every parallelism."""

import operator
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.first_jobs.programs import add_rows, rows_of, run
from tidelog import Files, Job, JsonLines

MINUTES = 60_000


def requests(server: int) -> list[dict[str, Any]]:
    """One a minute for two hours; each server's log begins an hour after the one before."""
    start = 1_700_000_000_000 + server * 60 * MINUTES
    return [
        # Some are up to three minutes late.
        {"path": f"/{n % 3}", "time_ms": start + (n - n % 4) * MINUTES, "server": server}
        for n in range(120)
    ]


def requests_per_window(logs: Path, output: Path) -> Job:
    job = Job("requests")
    (
        job.source(JsonLines(logs))
        .event_time(lambda row: row.time_ms, max_delay_ms=4 * MINUTES)
        .key_by(lambda row: row.path)
        .window(10 * MINUTES, value_of=lambda _: 1, combine=operator.add)
        .sink(Files(output, fields=("path", "window", "count")))
    )
    return job


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_windows_count_the_requests_of_all_servers(tmp_path: Path, parallelism: int) -> None:
    expected: Counter[tuple[str, int]] = Counter()
    for server in range(4):
        add_rows(tmp_path / "logs" / f"server-{server}.jsonl", requests(server))
        for row in requests(server):
            expected[row["path"], row["time_ms"] // (10 * MINUTES) * 10 * MINUTES] += 1
    job = requests_per_window(tmp_path / "logs", tmp_path / "out")
    run(job, tmp_path / "store", parallelism=parallelism)
    found = [((row["path"], row["window"]), row["count"]) for row in rows_of(tmp_path / "out")]
    assert sorted(found) == sorted(expected.items())
