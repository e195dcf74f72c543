"""What `tidelog run` prints and logs: progress, results, and JSON lines."""

import io
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.support.cli import count_words, lay_out, tidelog
from tests.support.jobs import contents, run, word_count
from tidelog import JobStatus, UserFunctionError
from tidelog.cli.output import Output, Rows
from tidelog.cli.run.live import LiveView, panel
from tidelog.cli.run.reports import STOPPING, Ending, JsonReports, PlainLines, ReadSpeed
from tidelog.cli.run.running import Speedometer
from tidelog.ids import Generation, Slot
from tidelog.runtime.status.checkpoints import CheckpointsStatus, HydrationStatus, RestoreStatus
from tidelog.runtime.status.distribution import Distribution
from tidelog.runtime.status.status import OperatorStatus, WorkerStatus
from tidelog.storage.memory import MemoryStore
from tidelog.storage.object_names import SEGMENTS

RESTORING = JobStatus(
    *("words", "restoring", 100.0, Generation(7)),
    restore=RestoreStatus(Slot(5), 0.25, 3.0, 1024, 4096, 10, 40),
)
RUNNING = JobStatus(
    *("words", "running", 100.0, Generation(7)),
    operators=(OperatorStatus("source", True, 1, 1000, 900, 0.5, 0),),
    checkpoints=CheckpointsStatus(
        completed=3, last_duration_s=0.02, p99_s=1.5, last_checkpoint=Slot(9)
    ),
)
ERROR = UserFunctionError("parse", found="ValueError: no", action="fix it")


def at(status: JobStatus, seconds: float) -> JobStatus:
    return replace(status, at_s=seconds)


def test_a_long_restore_shows_how_much_is_left() -> None:
    lines: list[str] = []
    reporter = PlainLines(5.0, lambda line, _: lines.append(line))
    for seconds in (0, 6):
        reporter.observe(at(RESTORING, seconds), ReadSpeed(10.0, 20.0))
    assert lines[1].startswith(
        "words: restored 25% of checkpoint 5, 3.0 s left; read 1.0 KiB of 4.0 KiB"
    )


def test_a_job_that_began_before_its_tables_were_whole_says_how_much_of_them_is_here() -> None:
    lines: list[str] = []
    reporter = PlainLines(5.0, lambda line, _: lines.append(line))
    hydration = HydrationStatus(0.34, 60.0, 3 << 30, 9 << 30, 21_000)
    for seconds, part in ((0, hydration), (6, hydration), (12, replace(hydration, seconds=70.0))):
        restore = RestoreStatus(Slot(5), 1.0, seconds=0.5, hydration=part)
        reporter.observe(at(replace(RUNNING, restore=restore), seconds), ReadSpeed(10.0, 20.0))
    assert lines[1].startswith(
        "words: serving 34% of 9.0 GiB here, 21,000 blocks fetched on demand, "
        "whole in about 60.0 s; records 1,000, 10/s"
    )
    assert lines[2].startswith("words: records 1,000, 10/s")


def test_a_plain_line_is_short_and_says_what_is_wrong() -> None:
    lines: list[str] = []
    reporter = PlainLines(5.0, lambda line, _: lines.append(line))
    reporter.observe(RUNNING, ReadSpeed())
    reporter.observe(at(RUNNING, 200.0), ReadSpeed(10.0, 20.0))
    failed = replace(RUNNING.checkpoints, failed=2, last_failure="the disk is full")
    reporter.observe(at(replace(RUNNING, checkpoints=failed), 300.0), ReadSpeed(0.0, 20.0))
    start = "words: records 1,000, {}/s; state 0 B; last checkpoint 20 ms"
    assert lines[1] == start.format(10)
    assert lines[2] == f"{start.format(0)}, 2 failed; last failure the disk is full"


def test_in_json_every_line_on_standard_error_is_a_document_also_the_reason_of_the_end(
    tmp_path: Path,
) -> None:
    text = tmp_path / "in"
    text.mkdir()
    (text / "tides.txt").write_text("the tide comes in\n")
    logs = ("--log-format", "json", "--log-level", "info")
    good = count_words(text, logs=logs)
    (tmp_path / "out").rename(tmp_path / "elsewhere")
    (tmp_path / "store").rename(tmp_path / "other")
    (tmp_path / "out").write_text("in the way")
    bad = count_words(text, "--debug", logs=logs)
    usage = tidelog(*logs, "run", "wordcount", "--parallelism", "none")
    unread = tidelog(*logs, "inspect", tmp_path / "nowhere")
    assert (good.exit_code, usage.exit_code) == (0, 2) and bad.exit_code > 0
    for result in (good, bad, usage, unread):
        documents = list(map(json.loads, result.stderr.splitlines()))
        levels = [document["level"] for document in documents]
        assert set(documents[0]) >= {"time", "level", "logger", "event", "message"}
        assert ("error" in levels) == (result.exit_code > 0)
    assert "finished; 1 record in" in good.stderr and "Next: " in bad.stderr


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
    assert (result["outcome"], result["exit_code"], result["restored_checkpoint"]) == (
        "failed",
        1,
        5,
    )
    assert result["error"]["what"] == "parse"


def test_the_latency_of_records_and_the_longest_standstill_are_shown_by_the_slowest_path(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines: list[str] = []
    ends = [
        replace(RUNNING.operators[0], id=str(p99), record_latency_s=Distribution(0, p50, p99, 9.0))
        for p50, p99 in ((0.012, 0.5), (0.02, 1.5), (0.03, 0.7))
    ]
    status = replace(RUNNING, operators=(replace(ends[0], longest_standstill_s=2.125), *ends[1:]))
    reporter = PlainLines(5.0, lambda line, _: lines.append(line), verbose=True)
    reporter.observe(RUNNING, ReadSpeed())
    reporter.observe(at(status, 200.0), ReadSpeed())
    reporter.observe(at(RUNNING, 300.0), ReadSpeed())
    assert "; latency p50 20 ms, p99 1.5 s, max 9.0 s, longest standstill 2.1 s; " in lines[-2]
    assert "; latency longest standstill 0 ms; " in lines[-1]
    for each in (status, RUNNING):
        reporter.end(Ending("finished", 0, each, None, 2.0))
    assert lines[-2].endswith(", the last is number 9, longest standstill 2.1 s")
    assert lines[-1].endswith(", the last is number 9")
    JsonReports().observe(status, ReadSpeed())
    first, second, _ = json.loads(capsys.readouterr().out)["operators"]
    assert (first["longest_standstill_s"], first["long_standstills"]) == (2.125, 0)
    assert second["record_latency_s"] == {"min": 0, "median": 0.02, "p99": 1.5, "max": 9.0}


def test_an_encoding_without_a_character_of_a_name_is_no_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, "ascii"))
    JsonReports().observe(replace(RUNNING, job="gr\u00fcn"), ReadSpeed())
    Output(as_json=False).show({}, "gr\u00fcn", Rows([{"job": "\udcff"}], "job"))
    as_json, *as_text = written.getvalue().splitlines()
    assert json.loads(as_json)["job"] == "gr\u00fcn"
    assert as_text == [b"gr\\xfcn", b"job", b"\\udcff"]


def test_a_second_signal_finds_the_cursor_shown_and_what_is_logged_stays_above_the_panel(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # takes what it writes to for a terminal
    monkeypatch.setenv("TERM", "xterm")
    hidden, shown = "\x1b[?25l", "\x1b[?25h"
    view = LiveView()
    view.stopping()
    view.observe(RUNNING, ReadSpeed())
    sys.stderr.write("a warning\n")
    written = capsys.readouterr().err
    view.end(Ending("interrupted", 130, RUNNING, None, 2.0))
    assert -1 < written.rfind(hidden) < written.rfind(shown)
    assert -1 < written.rfind("a warning") < written.rfind("words: running")


def test_names_in_the_panel_are_no_markup() -> None:
    console = Console(width=200, record=True, file=io.StringIO())
    dropped = replace(RUNNING, dropped_state=("state 'hits[today][/b]' of operator 'count'",))
    console.print(panel(dropped, ReadSpeed()))
    assert "state 'hits[today][/b]' of operator 'count'" in console.export_text()


def test_speed_is_that_of_the_last_seconds() -> None:
    def look(seconds: float, records: int) -> JobStatus:
        source = OperatorStatus("source", True, 1, records, 0, 0.0, 0)
        return replace(RUNNING, at_s=seconds, operators=(source,))

    speedometer = Speedometer()
    assert speedometer.read(at(RESTORING, 1)) == ReadSpeed()
    assert speedometer.read(look(10, 0)) == ReadSpeed()
    assert speedometer.read(look(14, 100)) == ReadSpeed(25, 25)
    assert speedometer.read(look(18, 400)) == ReadSpeed(75, 50)


def test_the_speed_of_workers_is_that_of_the_moments_at_which_they_sent_their_figures() -> None:
    def look(seconds: float, *workers: tuple[float, int]) -> JobStatus:
        sent = [
            WorkerStatus(number, 1, 1, records, silent_s=seconds - at)
            for number, (at, records) in enumerate(workers)
        ]
        return replace(RUNNING, at_s=seconds, workers=tuple(sent))

    speedometer = Speedometer()
    assert speedometer.read(look(10, (9.9, 0), (9.1, 0))) == ReadSpeed()
    assert speedometer.read(look(11.5, (10.9, 1000), (11.1, 2000))) == ReadSpeed(2000, 2000)
    # They have sent nothing since; one is late.
    assert speedometer.read(look(12, (10.9, 1000), (11.1, 2000))) == ReadSpeed(2000, 2000)
    assert speedometer.read(look(13, (10.9, 1000), (13, 3900))) == ReadSpeed(2000, 2000)
    assert speedometer.read(look(14.9, (10.9, 1000), (13.9, 4800))).now == pytest.approx(1000), (
        "one hangs"
    )


def test_no_phase_is_reported_after_the_stop() -> None:
    lines: list[str] = []
    plain = PlainLines(1.0, lambda line, _: lines.append(line))
    plain.stopping()
    plain.observe(replace(RUNNING, phase="starting"), ReadSpeed())
    plain.observe(RUNNING, ReadSpeed())
    assert lines == [STOPPING]


def documents(lines: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines.splitlines()]


def test_json_records_have_time_level_logger_event_and_fields(text: Path) -> None:
    logs = ("--log-level", "info", "--log-format", "json")
    done = count_words(text, "--json", logs=logs)
    assert done.exit_code == 0, done.output
    records = {record["event"]: record for record in documents(done.stderr)}
    started = records["generation_started"]
    assert (started["level"], started["logger"]) == ("info", "tidelog.checkpoint.slots")
    assert started["time"].endswith("+00:00")
    assert started["fields"] == {"job": "wordcount", "generation": 0}
    assert (
        started["message"] == "job 'wordcount' starts as generation 0, older generations are fenced"
    )
    assert records["checkpoint_completed"]["fields"]["seconds"] >= 0
    # Standard output holds results only.
    assert documents(done.stdout)[-1]["outcome"] == "finished"
    assert not any("logger" in document for document in documents(done.stdout))


def test_other_commands_show_their_records_too(tmp_path: Path) -> None:
    """`overhead` goes on without a segment that is gone, and says so."""
    store = MemoryStore()
    run(store, word_count())
    objects = dict(contents(store))
    del objects[max(name for name in objects if name.startswith(SEGMENTS))]
    place = lay_out(tmp_path / "store", objects)
    measured = tidelog("--log-level", "info", "overhead", place, "--engine", "local")
    assert "INFO tidelog.cost.measured.log: a segment is left out" in measured.stderr
