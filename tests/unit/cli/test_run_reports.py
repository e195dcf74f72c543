"""What `tidelog run` tells a person or a program."""

import json
from dataclasses import replace

import pytest

from tidelog import ConfigError, FencedError, JobStatus, TidelogError, UserFunctionError
from tidelog.cli.run.reports import (
    Ending,
    JsonReports,
    PlainLines,
    ReadSpeed,
)
from tidelog.cli.run.running import Speedometer, exit_code
from tidelog.ids import Generation, Slot
from tidelog.runtime.status.checkpoints import CheckpointsStatus, RestoreStatus
from tidelog.runtime.status.operators import OperatorStatus

STARTING = JobStatus("words", "starting", 100.0, None)
RESTORING = replace(
    STARTING,
    phase="restoring",
    generation=Generation(7),
    restore=RestoreStatus(Slot(5), 0.25, 3.0, 1024, 4096, 10, 40),
)
RUNNING = replace(
    STARTING,
    phase="running",
    generation=Generation(7),
    operators=(OperatorStatus("source", True, 1, 1000, 900, 0.5, 0),),
    checkpoints=CheckpointsStatus(completed=3, last_duration_s=0.02, p99_s=1.5, last_slot=Slot(9)),
)
ERROR = UserFunctionError("parse", found="ValueError: no", action="fix it")


def lines_of(*observed: JobStatus, interval_s: float = 5.0) -> list[str]:
    written: list[str] = []
    reporter = PlainLines(interval_s, written.append)
    for status in observed:
        reporter.observe(status, ReadSpeed(10.0, 20.0))
    return written


def at(status: JobStatus, seconds: float) -> JobStatus:
    return replace(status, at_s=seconds)


def test_a_long_restore_shows_how_much_is_left() -> None:
    lines = lines_of(at(RESTORING, 0), at(RESTORING, 6))
    assert lines[1].startswith("words: restored 25% of slot 5, 3.0 s left; read 1.0 KiB of 4.0 KiB")


def test_json_has_one_line_per_look_and_a_result(capsys: pytest.CaptureFixture[str]) -> None:
    reporter = JsonReports()
    reporter.observe(RESTORING, ReadSpeed())
    reporter.observe(RUNNING, ReadSpeed(10.0, 20.0))
    reporter.end(Ending("failed", 1, RUNNING, Slot(5), 2.0, ERROR))
    restoring, running, result = map(json.loads, capsys.readouterr().out.splitlines())
    assert [line["event"] for line in (restoring, running, result)] == ["progress"] * 2 + ["result"]
    assert restoring["restore"]["eta_s"] == 3.0
    assert (running["records_per_s"], running["mean_records_per_s"]) == (10.0, 20.0)
    assert (running["records_read"], result["records_read"]) == (1000, 1000)
    assert (result["outcome"], result["exit_code"], result["restored_slot"]) == ("failed", 1, 5)
    assert result["error"]["what"] == "parse"


def test_speed_is_measured_between_looks_and_since_the_first() -> None:
    def look(seconds: float, records: int) -> JobStatus:
        source = OperatorStatus("source", True, 1, records, 0, 0.0, 0)
        return replace(RUNNING, at_s=seconds, operators=(source,))

    speedometer = Speedometer()
    assert speedometer.read(at(RESTORING, 1)) == ReadSpeed()
    assert speedometer.read(look(10, 0)) == ReadSpeed()
    assert speedometer.read(look(12, 100)) == ReadSpeed(50, 50)
    assert speedometer.read(look(14, 400)) == ReadSpeed(150, 100)


@pytest.mark.parametrize(
    ("outcome", "error", "code"),
    [
        ("finished", None, 0),
        ("already-complete", None, 0),
        ("failed", ERROR, 1),
        ("failed", ConfigError("--input", action="pass it"), 2),
        ("fenced", FencedError("generation 1", action="stop"), 3),
        ("interrupted", None, 130),
    ],
)
def test_every_outcome_has_its_exit_code(outcome, error: TidelogError | None, code: int) -> None:
    assert exit_code(outcome, error) == code
