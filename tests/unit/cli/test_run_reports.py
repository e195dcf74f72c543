"""What `tidelog run` tells a person or a program."""

import json
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from tidelog import ConfigError, FencedError, JobStatus, TidelogError, UserFunctionError
from tidelog.cli.run.live import panel
from tidelog.cli.run.reports import (
    Ending,
    JsonReports,
    PlainLines,
    ReadSpeed,
    Reporter,
    ending_line,
)
from tidelog.cli.run.running import Speedometer, exit_code
from tidelog.ids import Generation, Slot
from tidelog.runtime.status.checkpoints import CheckpointsStatus, RestoreStatus
from tidelog.runtime.status.distribution import Distribution
from tidelog.runtime.status.operators import OperatorStatus
from tidelog.runtime.status.storage import StateStatus, UploadsStatus

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


def test_a_phase_is_reported_once() -> None:
    lines = lines_of(RESTORING, RESTORING, RUNNING, RUNNING)
    assert lines == [
        "words: restoring slot 5 (4.0 KiB, 40 changes)",
        "words: running from the start of its input as generation 7",
    ]


def test_progress_comes_when_the_interval_is_over() -> None:
    lines = lines_of(at(RUNNING, 0), at(RUNNING, 4.9), at(RUNNING, 5), at(RUNNING, 9))
    assert len(lines) == 2
    assert "records 1,000, 10/s now, 20/s on average" in lines[1]
    assert "checkpoints 3 completed, 0 failed, last 20 ms, p50 -, p99 1.5 s" in lines[1]


def test_a_long_restore_shows_how_much_is_left() -> None:
    lines = lines_of(at(RESTORING, 0), at(RESTORING, 6))
    assert lines[1].startswith("words: restored 25% of slot 5, 3.0 s left; read 1.0 KiB of 4.0 KiB")


@pytest.mark.parametrize(
    ("ending", "expected"),
    [
        (Ending("finished", 0, RUNNING, Slot(5), 2.0), "the last in slot 9"),
        (Ending("already-complete", 0, RUNNING, Slot(5), 2.0), "(slot 5), nothing to do"),
        (Ending("interrupted", 130, RUNNING, Slot(5), 2.0), "resume from slot 9 or newer"),
        (Ending("interrupted", 130, STARTING, None, 2.0), "the start, no checkpoint completed"),
        (
            Ending("interrupted", 130, RUNNING, Slot(5), 2.0, chosen_slot=True),
            "run the same command without --restore-slot or --from to resume from slot 9 or newer",
        ),
        (
            Ending("failed", 1, RUNNING, Slot(5), 2.0, ERROR),
            "Error: parse; found ValueError: no. Next: fix it",
        ),
    ],
)
def test_the_last_line_says_what_happened(ending: Ending, expected: str) -> None:
    assert expected in ending_line(ending)


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


def test_quiet_says_only_errors(capsys: pytest.CaptureFixture[str]) -> None:
    reporter = Reporter()
    reporter.observe(RUNNING, ReadSpeed())
    reporter.end(Ending("finished", 0, RUNNING, None, 2.0))
    assert capsys.readouterr().err == ""
    reporter.end(Ending("failed", 1, RUNNING, None, 2.0, ERROR))
    assert "ValueError: no" in capsys.readouterr().err


@pytest.mark.parametrize("status", [STARTING, RESTORING, RUNNING])
def test_the_live_panel_shows_every_phase(status: JobStatus) -> None:
    text = rendered(status)
    assert "words" in text
    assert ("1,000" in text) == (status is RUNNING)
    assert ("25%" in text) == (status is RESTORING)


def test_the_live_panel_shows_what_there_is_as_it_is() -> None:
    busy = replace(
        RUNNING,
        operators=(OperatorStatus("count", False, 1, 10, 0, 0.5, 0, late_records=1234),),
        uploads=UploadsStatus(latency_s=Distribution(0.01, 0.02, 0.03, 0.04)),
        state=StateStatus(updates=700, changes=200),
        checkpoints=CheckpointsStatus(failed=1, last_failure="[bold]s3://bucket[/bold]"),
    )
    for text in ("1,234 records dropped", "p99 30 ms, queue", "3.5 updates per change", "[bold]s3"):
        assert text in rendered(busy)
    for text in ("dropped", "ms, queue", "per change", "last failure"):
        assert text not in rendered(RUNNING)


def rendered(status: JobStatus) -> str:
    text = StringIO()
    Console(file=text, width=120).print(panel(status, ReadSpeed()))
    return text.getvalue()


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
