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
from contextlib import suppress
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from tests.process.harness import GIVE_UP_S, Run, killed_at_last, wait_until
from tests.process.on_a_server import job_on_a_server, with_lines
from tests.support.ports import free_port
from tests.wire.proxy import Behaviour
from tests.wire.servers import S3Server
from tidelog.cli.exit_codes import EXIT_INTERRUPTED
from tidelog.storage.config import S3Client

KUBERNETES_S = 30
"""A container is killed so long after the signal. A request is given up after 60 s."""


@pytest.mark.parametrize("options", [(), ("--workers", "2")], ids=["one-process", "two-workers"])
def test_a_job_whose_store_does_not_answer_ends_by_sigterm_without_the_answer(
    tmp_path: Path,
    moto: S3Server,
    s3_client: S3Client,
    behaviour: Behaviour,
    options: tuple[str, ...],
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


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_job_that_a_function_holds_says_which_and_ends_by_sigterm(
    tmp_path: Path, workers: str
) -> None:
    options = ("--workers", workers, "--worker-timeout", "5min")
    run = with_lines(Run(tmp_path, "tests.process.jobs:hangs", options))
    with killed_at_last(run.start()) as process:
        wait_until(lambda: run.slots() >= 3, process)
        run.release()
        assert process.stderr is not None
        held = next(line for line in process.stderr if "has stopped the whole job" in line)
        assert "operator 'wait'" in held and "hangs.<locals>.wait_for_ever" in held
        process.send_signal(signal.SIGTERM)
        assert run.end(process).returncode == EXIT_INTERRUPTED


def test_the_ages_of_a_job_that_a_function_holds_grow_in_its_metrics(tmp_path: Path) -> None:
    def age() -> float:
        """The age of the newest checkpoint in the metrics; 0 before the first checkpoint."""
        with suppress(URLError), urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            for line in answer.read().decode().splitlines():
                if line.startswith("tidelog_checkpoint_age_seconds{"):
                    return float(line.rpartition(" ")[2])
        return 0.0

    port = free_port()
    run = with_lines(Run(tmp_path, "tests.process.jobs:hangs", ("--metrics-port", str(port))))
    with killed_at_last(run.start(stderr=subprocess.DEVNULL)) as process:
        wait_until(lambda: run.slots() >= 3 and age() > 0, process)
        run.release()
        # The interval is a tenth of a second.
        wait_until(lambda: age() > 3, process)


@pytest.fixture
def small_pipe() -> Iterator[tuple[int, int]]:
    """The ends of a pipe that a few lines fill."""
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    yield reading, writing
    for end in (reading, writing):
        os.close(end)


@pytest.fixture
def full_pipe(small_pipe: tuple[int, int]) -> tuple[int, int]:
    """The ends of a pipe that takes nothing more."""
    os.set_blocking(small_pipe[1], False)
    with suppress(BlockingIOError):
        while True:
            os.write(small_pipe[1], FILLER)
    os.set_blocking(small_pipe[1], True)
    return small_pipe


FILLER = b"what was there before\n"


def in_pipe(reading: int) -> int:
    """Bytes that nobody has read."""
    return int(struct.unpack("i", fcntl.ioctl(reading, termios.FIONREAD, b"\0" * 4))[0])


REPORTS = {
    "lines": ("stderr", ("--report-interval", "10ms")),
    "log": ("stderr", ("--quiet",)),
    "json": ("stdout", ("--json", "--report-interval", "10ms")),
}


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("reports", REPORTS)
def test_a_job_whose_reports_nobody_reads_goes_on_and_ends_by_sigterm(
    tmp_path: Path, full_pipe: tuple[int, int], reports: str, workers: str
) -> None:
    stream, options = REPORTS[reports]
    _, writing = full_pipe
    job = "shouting" if reports == "log" else "copy"
    run = with_lines(Run(tmp_path, f"tests.process.jobs:{job}", ("--workers", workers, *options)))
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, stream: writing}
    with killed_at_last(run.start(**quiet)) as process:
        wait_until(lambda: run.slots() >= 3, process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(GIVE_UP_S) == EXIT_INTERRUPTED


def test_a_job_whose_results_nobody_reads_ends_by_sigterm(
    tmp_path: Path, small_pipe: tuple[int, int]
) -> None:
    reading, writing = small_pipe
    run = with_lines(Run(tmp_path, "tests.process.jobs:printing"))
    with killed_at_last(run.start(stdout=writing, stderr=subprocess.DEVNULL)) as process:
        looks = [0]
        # Results come every hundredth of a second, until no more fit.
        wait_until(lambda: looks.append(in_pipe(reading)) or 0 < looks[-1] == looks[-2], process)  # type: ignore[func-returns-value]
        process.send_signal(signal.SIGTERM)
        assert process.wait(GIVE_UP_S) == EXIT_INTERRUPTED


def test_a_reader_that_was_slow_gets_whole_lines_and_the_end(
    tmp_path: Path, full_pipe: tuple[int, int]
) -> None:
    reading, writing = full_pipe
    run = with_lines(Run(tmp_path, "tests.process.jobs:copy", REPORTS["json"][1]), 2000)
    run.release()
    with killed_at_last(run.start(stdout=writing, stderr=subprocess.DEVNULL)) as process:
        wait_until(lambda: run.slots() >= 3, process)
        with os.fdopen(os.dup(reading)) as lines:
            reports = (line for line in lines if line != FILLER.decode())
            events = (json.loads(line)["event"] for line in reports)
            assert next(event for event in events if event != "progress") == "result"
        assert process.wait(GIVE_UP_S) == 0
