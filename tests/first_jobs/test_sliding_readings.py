"""Sums of the last three minutes, every minute: what comes late counts where a window is open."""

import operator
from collections import Counter
from pathlib import Path

from tests.first_jobs.programs import add_rows, rows_of, run
from tidelog import Files, Job, JsonLines, OutputTag

MINUTE = 60_000
DEVICES = [f"d{n}" for n in range(6)]


def sums(directory: Path, *, follow: bool) -> Job:
    late = OutputTag("late")
    job = Job("readings")
    windows = (
        job.source(JsonLines(directory / "in", follow=follow))
        .event_time(lambda row: row.time_ms, max_delay_ms=1_000)
        .key_by(lambda row: row.device)
        .window(3 * MINUTE, MINUTE, value_of=lambda row: row.value, combine=operator.add, late=late)
    )
    windows.sink(Files(directory / "sums", fields=("device", "start", "value")))
    windows.side_output(late).sink(Files(directory / "late"), name="late")
    return job


def test_a_late_reading_counts_in_its_windows_that_are_open(tmp_path: Path) -> None:
    file = tmp_path / "in" / "readings.jsonl"
    in_time = [
        {"device": device, "time_ms": minute * MINUTE + 1_000 * n, "value": 10**minute}
        for minute in range(6)
        for n, device in enumerate(DEVICES)
    ]
    add_rows(file, in_time)

    def five_windows_are_out() -> bool:
        return len(rows_of(tmp_path / "sums")) == 5 * len(DEVICES)

    store = tmp_path / "store"
    run(sums(tmp_path, follow=True), store, five_windows_are_out, parallelism=2)
    # The windows of the first two minutes have fired, and one of three of the fifth minute.
    late = [{"device": device, "time_ms": n, "value": 7} for n, device in enumerate(DEVICES)]
    partly = [{"device": "d0", "time_ms": 4 * MINUTE + 1, "value": 5}]
    add_rows(file, [*late, *partly])
    run(sums(tmp_path, follow=False), store, parallelism=3)

    expected: Counter[tuple[str, int]] = Counter()
    for row in in_time:
        for minute in range(3):
            start = (row["time_ms"] // MINUTE - minute) * MINUTE
            expected[row["device"], start] += row["value"]
    expected["d0", 3 * MINUTE] += 5
    expected["d0", 4 * MINUTE] += 5
    found = [((row["device"], row["start"]), row["value"]) for row in rows_of(tmp_path / "sums")]
    assert sorted(found) == sorted(expected.items())
    assert sorted(rows_of(tmp_path / "late"), key=lambda row: row["device"]) == late
