"""`tidelog run` as a process: results, exit codes, reports, fencing, resuming."""

import json
import os
import pty
import random
import signal
import socket
from collections import Counter
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from tests.process import harness
from tests.process.harness import Run, killed_at_last, wait_until
from tests.support.depth import one_by_one


def write_lines(run: Run, lines: int = 200, *, last: str = "the end") -> list[str]:
    """Distinct lines in one file."""
    texts = [f"line {number} of {lines}" for number in range(lines)] + [last]
    (run.input / "lines.txt").write_text("".join(f"{text}\n" for text in texts))
    return texts


def write_tree(root: Path) -> Counter[str]:
    """Files of every kind below a directory; returns what Counter makes of those in `*.txt`."""
    rng = random.Random(7)
    counts: Counter[str] = Counter()
    contents = {
        "empty.txt": b"",
        "blank.txt": b"\n\n  \t \n",
        "broken.txt": b"caf\xc3\xa9 \xff\xfe \xc3 \xe2\x82 tail\xc3\n\xa9head \x00nul\x00\n" * 50,
        "dos.txt": b"one two\r\nthree\r\n",
        "no newline at the end.txt": b"first line\nlast line",
        "one/wide.txt": "\u2003wide\u3000space\u2028 \U0001f30a \u00a0hard\u0085next\n".encode(),
        "one/two/random.txt": bytes(rng.randrange(256) for _ in range(40_000)),
        "one/two/many.txt": b"".join(b"w%d " % rng.randrange(3_000) for _ in range(20_000)),
        ".hidden.txt": b"unseen\n",
        "other.md": b"unmatched\n",
    }
    for name, data in contents.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        if path.suffix == ".txt" and not path.name.startswith("."):
            counts.update(data.decode("utf-8", "replace").split())
    return counts


@one_by_one(table=["rocksdb", "memory"], parallelism=["1", "3"])
def test_word_count_of_any_bytes_equals_counter_with_each_word_once(
    tmp_path: Path, parallelism: str, table: str
) -> None:
    chosen = ("--include", "*.txt", "--parallelism", parallelism, "--table", table)
    run = Run(tmp_path, "wordcount", chosen)
    expected = write_tree(run.input)
    run.finish_here()
    words = [record["word"] for record in run.records()]
    assert len(words) == len(set(words))
    assert {record["word"]: record["count"] for record in run.records()} == expected


def test_word_count_prints_to_standard_output_without_an_output(tmp_path: Path) -> None:
    run = Run(tmp_path, "wordcount")
    (run.input / "a.txt").write_text("tide log tide\n")
    at = run.command.index("--output")
    printed = harness.tidelog(*run.command[3:at], *run.command[at + 2 :])
    assert printed.returncode == 0
    records = [json.loads(line) for line in printed.stdout.splitlines()]
    assert {r["word"]: r["count"] for r in records} == {"tide": 2, "log": 1}


def test_of_two_processes_on_one_store_the_newer_goes_on_and_the_older_is_fenced(
    tmp_path: Path,
) -> None:
    run = Run(tmp_path, "tests.process.jobs:copy")
    lines = write_lines(run)
    with killed_at_last(run.start()) as older:
        wait_until(lambda: run.slots() >= 3, older)
        with killed_at_last(run.start()) as newer:
            fenced = run.end(older)
            run.release()
            finished = run.end(newer)
    assert fenced.returncode == 3
    assert "fenced" in fenced.stderr
    assert "Traceback" not in fenced.stderr
    assert finished.returncode == 0, finished.stderr
    assert sorted(run.lines()) == sorted(lines)


def test_a_process_that_slept_through_its_successor_changes_nothing(tmp_path: Path) -> None:
    run = Run(tmp_path, "tests.process.jobs:copy")
    lines = write_lines(run)
    with killed_at_last(run.start()) as older:
        wait_until(lambda: run.slots() >= 3, older)
        older.send_signal(signal.SIGSTOP)
        run.release()
        run.finish_here()
        older.send_signal(signal.SIGCONT)
        fenced = run.end(older)
    assert fenced.returncode == 3, fenced.stderr
    assert sorted(run.lines()) == sorted(lines)
    assert "already complete" in run.finish_here().stderr


def test_a_failing_function_is_named_and_its_job_resumes_once_it_is_fixed(tmp_path: Path) -> None:
    run = Run(tmp_path, "tests.process.jobs:fragile")
    lines = write_lines(run, last="the poison")
    with killed_at_last(run.start()) as process:
        wait_until(lambda: run.slots() >= 3, process)
        run.release()
        failed = run.end(process)
    assert failed.returncode == 1
    assert "parse" in failed.stderr
    assert "cannot read 'the poison'" in failed.stderr
    assert "Traceback" not in failed.stderr

    run.fixed.touch()
    result = json.loads(run.finish_here("--json").stdout.splitlines()[-1])
    assert result["restored_slot"] >= 2
    assert result["records_read"] < len(lines)
    assert sorted(run.lines()) == sorted(lines)


def test_with_debug_the_traceback_of_the_function_is_printed(tmp_path: Path) -> None:
    run = Run(tmp_path, "tests.process.jobs:fragile")
    write_lines(run, last="the poison")
    run.release()
    failed = run.end(run.start("--debug"))
    assert failed.returncode == 1
    assert "in parse" in failed.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_a_stopped_job_says_where_it_resumes_and_does(
    tmp_path: Path, number: signal.Signals
) -> None:
    run = Run(tmp_path, "tests.process.jobs:copy")
    lines = write_lines(run)
    with killed_at_last(run.start()) as process:
        wait_until(lambda: run.slots() >= 3, process)
        process.send_signal(number)
        stopped = run.end(process)
    assert stopped.returncode == 130
    assert "to resume from slot" in stopped.stderr
    assert "Traceback" not in stopped.stderr
    assert list((tmp_path / "work").glob("*/*")) == []  # nothing is left on the disk
    run.release()
    run.finish_here()
    assert sorted(run.lines()) == sorted(lines)


def test_a_second_signal_ends_a_job_that_cannot_stop(tmp_path: Path) -> None:
    run = Run(tmp_path, "tests.process.jobs:stuck")
    run.output.mkdir()
    with killed_at_last(run.start()) as process:
        wait_until((run.output / "reading").exists, process)
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        assert any("stopping" in line for line in process.stderr)
        process.send_signal(signal.SIGINT)
        assert process.wait(harness.GIVE_UP_S) == -signal.SIGINT


def test_json_reports_are_lines_of_progress_and_one_result(tmp_path: Path) -> None:
    run = Run(tmp_path, "tests.process.jobs:copy", ("--json", "--report-interval", "50ms"))
    lines = write_lines(run)
    with killed_at_last(run.start()) as process:
        wait_until(lambda: run.slots() >= 4, process)
        run.release()
        done = run.end(process)
    *progress, result = map(json.loads, done.stdout.splitlines())
    assert {report["event"] for report in progress} == {"progress"}
    assert result["event"] == "result"
    assert result["outcome"] == "finished"
    assert result["exit_code"] == done.returncode == 0
    assert result["records_read"] == len(lines)
    assert result["error"] is None
    completed = [report["checkpoints"]["completed"] for report in progress]
    assert completed == sorted(completed)
    assert result["checkpoints"]["completed"] >= completed[-1] > 0


def test_an_error_as_json_has_its_parts(tmp_path: Path) -> None:
    run = Run(tmp_path, "tests.process.jobs:fragile", ("--json",))
    write_lines(run, last="the poison")
    run.release()
    result = json.loads(run.end(run.start()).stdout.splitlines()[-1])
    assert result["outcome"] == "failed"
    assert result["exit_code"] == 1
    assert result["error"]["type"] == "UserFunctionError"
    assert result["error"]["what"] == "parse"


def test_metrics_are_served_while_the_job_runs(tmp_path: Path) -> None:
    port = free_port()
    run = Run(tmp_path, "tests.process.jobs:copy", ("--metrics-port", str(port), "--quiet"))
    write_lines(run)

    def served() -> bool:
        try:
            with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
                text = answer.read().decode()
        except URLError:
            return False
        return 'tidelog_running{job_name="copy"} 1.0' in text

    with killed_at_last(run.start()) as process:
        wait_until(served, process)
        run.release()
        assert run.end(process).returncode == 0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_a_terminal_gets_a_view_that_ends_with_what_to_do_next(tmp_path: Path) -> None:
    run = Run(tmp_path, "tests.process.jobs:copy")
    write_lines(run)
    terminal, its_end = pty.openpty()
    with killed_at_last(run.start(stderr=its_end)) as process:
        os.close(its_end)
        shown = read_until(terminal, "checkpoints")
        process.send_signal(signal.SIGINT)
        shown += read_until(terminal, None)
        assert process.wait(harness.GIVE_UP_S) == 130
    assert "copy: running from the start of its input" in shown
    assert "to resume from" in " ".join(shown.split())


def read_until(terminal: int, text: str | None) -> str:
    """What is shown until the text appears, or until the process has closed the terminal."""
    shown = b""
    while text is None or text not in shown.decode(errors="replace"):
        try:
            shown += os.read(terminal, 4096)
        except OSError:  # the other end is closed
            break
    return shown.decode(errors="replace")
