"""A signal ends a job soon, whatever the job waits for: a store, a reader of its output, a function
of the user's.
"""

import fcntl
import json
import os
import signal
import struct
import subprocess
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process.harness import GIVE_UP_S, Run, killed_at_last, wait_until
from tests.process.on_a_server import job_on_a_server, with_lines
from tests.wire.proxy import Behaviour
from tests.wire.servers import S3Server
from tidelog.cli.exit_codes import EXIT_INTERRUPTED

KUBERNETES_S = 30
"""A container is killed so long after the signal. A request is given up after 60 s."""


@pytest.mark.parametrize("options", [(), ("--workers", "2")], ids=["one-process", "two-workers"])
def test_a_job_whose_store_does_not_answer_ends_by_sigterm_without_the_answer(
    tmp_path: Path, moto: S3Server, behaviour: Behaviour, options: tuple[str, ...]
) -> None:
    with job_on_a_server(tmp_path, moto, behaviour, *options) as (process, _):
        behaviour.stalls.set()
        assert behaviour.awaited.wait(GIVE_UP_S)
        process.send_signal(signal.SIGTERM)
        assert process.wait(KUBERNETES_S) == EXIT_INTERRUPTED


def test_a_job_whose_writer_never_closes_ends_by_sigterm(tmp_path: Path) -> None:
    run = with_lines(Run(tmp_path, "tests.process.jobs:closes_never"))
    with killed_at_last(run.start()) as process:
        wait_until(lambda: run.slots() >= 3, process)
        process.send_signal(signal.SIGTERM)
        done = run.end(process)
    assert done.returncode == EXIT_INTERRUPTED
    assert "the process ends as it is, which loses nothing" in done.stderr


def test_a_job_that_a_function_holds_ends_by_sigterm(tmp_path: Path) -> None:
    run = with_lines(Run(tmp_path, "tests.process.jobs:hangs"))
    with killed_at_last(run.start()) as process:
        wait_until(lambda: run.slots() >= 3, process)
        run.release()
        assert process.stderr is not None
        assert any("has held the whole job" in line for line in process.stderr)
        process.send_signal(signal.SIGTERM)
        assert run.end(process).returncode == EXIT_INTERRUPTED


@pytest.fixture
def small_pipe() -> Iterator[tuple[int, int]]:
    """The ends of a pipe that a few lines fill."""
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    yield reading, writing
    for end in (reading, writing):
        os.close(end)


def is_full(reading: int) -> bool:
    """Whether another line does not fit into a pipe."""
    waiting = struct.unpack("i", fcntl.ioctl(reading, termios.FIONREAD, b"\0" * 4))[0]
    return bool(waiting > 2048)


REPORTS = {
    "lines": ("stderr", ("--report-interval", "10ms")),
    "log": ("stderr", ("--quiet",)),
    "json": ("stdout", ("--json", "--report-interval", "10ms")),
}


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("reports", REPORTS)
def test_a_job_whose_reports_nobody_reads_goes_on_and_ends_by_sigterm(
    tmp_path: Path, small_pipe: tuple[int, int], reports: str, workers: str
) -> None:
    stream, options = REPORTS[reports]
    reading, writing = small_pipe
    job = "shouting" if reports == "log" else "copy"
    run = with_lines(Run(tmp_path, f"tests.process.jobs:{job}", ("--workers", workers, *options)))
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, stream: writing}
    with killed_at_last(run.start(**quiet)) as process:
        wait_until(lambda: is_full(reading), process)
        full_at = run.slots()
        wait_until(lambda: run.slots() >= full_at + 3, process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(GIVE_UP_S) == EXIT_INTERRUPTED


def test_a_job_whose_results_nobody_reads_makes_checkpoints_and_ends_by_sigterm(
    tmp_path: Path, small_pipe: tuple[int, int]
) -> None:
    reading, writing = small_pipe
    run = with_lines(Run(tmp_path, "tests.process.jobs:printing"))
    with killed_at_last(run.start(stdout=writing, stderr=subprocess.DEVNULL)) as process:
        wait_until(lambda: is_full(reading), process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(GIVE_UP_S) == EXIT_INTERRUPTED


def test_a_reader_that_was_slow_gets_whole_lines_and_the_end(
    tmp_path: Path, small_pipe: tuple[int, int]
) -> None:
    reading, writing = small_pipe
    run = with_lines(Run(tmp_path, "tests.process.jobs:copy", REPORTS["json"][1]))
    run.release()
    with killed_at_last(run.start(stdout=writing, stderr=subprocess.DEVNULL)) as process:
        wait_until(lambda: is_full(reading), process)
        with os.fdopen(os.dup(reading)) as lines:
            events = (json.loads(line)["event"] for line in lines)
            assert next(event for event in events if event != "progress") == "result"
        assert process.wait(GIVE_UP_S) == 0
