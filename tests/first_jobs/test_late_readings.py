"""Readings that come after their window go to a sink of their own."""

from pathlib import Path

from tests.first_jobs.programs import add_rows, rows_of, run
from tidelog import Files, Job, JsonLines, OutputTag

MINUTE = 60_000


def highest_per_minute(directory: Path, *, follow: bool) -> Job:
    late = OutputTag("late")
    job = Job("readings")
    windows = (
        job.source(JsonLines(directory / "in", follow=follow))
        .event_time(lambda row: row.time_ms, max_delay_ms=1_000)
        .key_by(lambda row: row.device)
        .window(MINUTE, value_of=lambda row: row.value, combine=max, late=late)
    )
    windows.sink(Files(directory / "highest", fields=("device", "minute", "value")))
    windows.side_output(late).sink(Files(directory / "late"), name="late")
    return job


def test_a_late_reading_is_set_aside_and_changes_no_window(tmp_path: Path) -> None:
    file = tmp_path / "in" / "readings.jsonl"
    devices = [f"d{n}" for n in range(6)]
    in_time = [
        {"device": device, "time_ms": minute * MINUTE + 1_000 * n, "value": 10 * minute + n}
        for minute in range(4)
        for n, device in enumerate(devices)
    ]
    add_rows(file, in_time)

    def three_minutes_are_out() -> bool:
        return len(rows_of(tmp_path / "highest")) == 3 * len(devices)

    job = highest_per_minute(tmp_path, follow=True)
    run(job, tmp_path / "store", three_minutes_are_out, parallelism=2)
    late = [{"device": device, "time_ms": n, "value": 999} for n, device in enumerate(devices)]
    still_open = [{"device": "d0", "time_ms": 3 * MINUTE + 1, "value": 77}]
    add_rows(file, [*late, *still_open])
    run(highest_per_minute(tmp_path, follow=False), tmp_path / "store", parallelism=2)

    expected = {(row["device"], row["time_ms"] // MINUTE * MINUTE): row["value"] for row in in_time}
    expected["d0", 3 * MINUTE] = 77
    found = [
        ((row["device"], row["minute"]), row["value"]) for row in rows_of(tmp_path / "highest")
    ]
    assert sorted(found) == sorted(expected.items())
    assert sorted(rows_of(tmp_path / "late"), key=lambda row: row["device"]) == late
