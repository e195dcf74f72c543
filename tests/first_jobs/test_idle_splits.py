"""Three logs out of order, one of which falls silent: hourly counts come out all the same."""

import operator
from collections import Counter
from pathlib import Path
from typing import Any

from tests.first_jobs.programs import add_rows, rows_of, run
from tidelog import Files, Job, JsonLines

HOUR = 3_600_000
MINUTE = HOUR // 60


def log(server: int, first_minute: int, minutes: int) -> list[dict[str, Any]]:
    """A line a minute; pairs of them are in the wrong order."""
    order = [n ^ 1 for n in range(first_minute, first_minute + minutes)]
    return [{"server": f"s{server}", "time_ms": n * MINUTE} for n in order]


def expected(rows: list[dict[str, Any]]) -> Counter[tuple[str, int]]:
    return Counter((row["server"], row["time_ms"] // HOUR * HOUR) for row in rows)


def found(output: Path) -> list[tuple[tuple[str, int], int]]:
    return sorted(((row["server"], row["start"]), row["lines"]) for row in rows_of(output))


def test_a_silent_log_holds_back_nobody_for_long(tmp_path: Path) -> None:
    def job(*, follow: bool) -> Job:
        job = Job("hours")
        lines = job.source(JsonLines(tmp_path / "logs", follow=follow)).event_time(
            lambda row: row.time_ms, max_delay_ms=MINUTE, idle_after_ms=1_000
        )
        hours = lines.key_by(lambda row: row.server).window(
            HOUR, value_of=lambda _: 1, combine=operator.add
        )
        hours.sink(Files(tmp_path / "out", fields=("server", "start", "lines")))
        return job

    rows = log(0, 0, 182) + log(1, 0, 182) + log(2, 0, 30)
    for row in rows:
        add_rows(tmp_path / "logs" / f"{row['server']}.jsonl", [row])
    # The busy logs have passed three hours; the silent one has told of half an hour.
    passed = {key: lines for key, lines in expected(rows).items() if key[1] < 3 * HOUR}

    def all_out() -> bool:
        return found(tmp_path / "out") == sorted(passed.items())

    run(job(follow=True), tmp_path / "store", all_out, parallelism=2)
    later = log(0, 182, 60) + log(1, 182, 60) + log(2, 182, 40)
    for row in later:
        add_rows(tmp_path / "logs" / f"{row['server']}.jsonl", [row])
    run(job(follow=False), tmp_path / "store", parallelism=3)
    assert found(tmp_path / "out") == sorted(expected(rows + later).items())
